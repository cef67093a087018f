"""Steering over HTTP, with everything real but the model."""

import asyncio
import json
from typing import Any

import pytest

from tests.models import calls, hangs, says, script, waits
from tests.system import Answer, System, running_system

ALICE = {"x-test-principal": "alice"}
BOB = {"x-test-principal": "bob"}


def words(session: str, content: str = "be brief", **fields: Any) -> Answer:
    return {"session_id": session, "content": content, "message_type": "steering", **fields}


async def steer(system: System, session: str, content: str = "be brief", **fields: Any) -> Answer:
    answer = await system.post("/chat", words(session, content, **fields))
    assert answer.status_code == 202, answer.text
    taken: Answer = answer.json()
    return taken


def frames(text: str) -> list[Answer]:
    return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


async def test_r155_without_a_session_there_is_nothing_to_steer(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        for body in (words("absent"), {"content": "be brief", "message_type": "steering"}):
            for path in ("/chat", "/chat/stream"):
                answer = await system.post(path, body)
                assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
        assert await system.conn.fetchval("select count(*) from sessions") == 0


async def test_r143_r157_steering_of_a_live_turn_is_queued_and_shown_where_it_was_delivered(
    database_url: str, temporal_address: str
) -> None:
    go_on = asyncio.Event()
    scripted = script(waits(go_on, "one", "two"), says("three"))
    async with running_system(database_url, temporal_address, scripted) as system:
        answer = asyncio.create_task(system.chat("s1", id="m1"))
        await system.until(lambda: scripted.requests)
        taken = await steer(system, "s1", id="g1")
        assert taken == {"steering_id": "g1", "delivery": "queued", "turn_id": None}
        pending = next(row for row in await system.messages("s1") if row["id"] == "g1")
        assert pending["steering"] == {"status": "pending", "delivered_at": None, "message_id": None}
        queued = await system.post("/chat/stream", words("s1", id="g2"))
        assert (queued.status_code, queued.json()["delivery"]) == (202, "queued")
        go_on.set()
        done = await answer
        rows = await system.messages("s1")
        assert [row["id"] for row in rows] == ["m1", done["message_id"], "g1", "g2"]
        assert [row["parent_id"] for row in rows] == [None, "m1", None, None]
        assert [row["role"] for row in rows[2:]] == ["user", "user"]
        steering = rows[2]["steering"]
        assert (steering["status"], steering["message_id"]) == ("delivered", done["message_id"])
        assert steering["delivered_at"] == rows[2]["updated_at"] >= rows[2]["created_at"]
        assert rows[0]["steering"] is None
        assert len((await system.get("/sessions/s1/tree"))["messages"]) == 2
        assert (await system.get("/sessions/s1/messages/g1"))["steering"] == steering


async def test_r148_promoted_steering_streams_its_turn(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("hello"), says(" and on"))) as system:
        first = await system.chat("s1")
        answer = await system.post("/chat/stream", words("s1", id="g1", turn_id="t2"))
        assert (answer.status_code, answer.headers["x-session-id"]) == (200, "s1")
        events = frames(answer.text)
        assert {event["turn_id"] for event in events} == {"t2"}
        assert (events[0]["type"], events[0]["kind"], events[-1]["type"]) == ("turn.started", "steering", "turn.completed")
        delivered = next(event for event in events if event["type"] == "steering.delivered")
        assert (delivered["steering_id"], delivered["message_id"]) == ("g1", first["message_id"])
        final = next(event for event in events if event["type"] == "turn.final")
        assert (final["user_message_id"], final["message_id"], final["content"]) == (None, first["message_id"], " and on")


async def test_r154_a_steering_id_again_is_the_same_steering(database_url: str, temporal_address: str) -> None:
    go_on = asyncio.Event()
    scripted = script(says("hello"), says("more"), waits(go_on, "one", "two"), says("three"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        promoted = await steer(system, "s1", id="g1")
        assert promoted["delivery"] == "promoted" and promoted["turn_id"]
        await system.idle("s1", 2)
        answer = asyncio.create_task(system.chat("s1"))
        await system.until(lambda: len(scripted.requests) == 3)
        queued = await steer(system, "s1", id="g2")
        go_on.set()
        await answer
        for remembered in (True, False):
            if not remembered:
                await system.workflow("s1").terminate()
            assert await steer(system, "s1", id="g1") == promoted
            assert await steer(system, "s1", id="g2") == queued
            other = await system.post("/chat", words("s1", "something else", id="g1"))
            assert (other.status_code, other.json()["code"]) == (409, "duplicate_id")
        assert await system.conn.fetchval("select count(*) from steering") == 2
        assert len(scripted.requests) == 4


async def test_r67_steering_is_listed_beside_every_path(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        first = await system.chat("s1", id="m1")
        await steer(system, "s1", id="g1")
        await system.idle("s1", 2)
        await system.chat("s1", "elsewhere", parent_id="m1", id="m2")
        old = (await system.get(f"/sessions/s1/messages?leaf_id={first['message_id']}"))["messages"]
        assert [row["id"] for row in old] == ["m1", first["message_id"], "g1"]
        assert [row["id"] for row in await system.messages("s1")][:2] == ["m1", "g1"]


async def test_r52_steering_of_a_bound_session_names_its_profile_or_none(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1", subject="anna")
        for fields in ({"profile": "other"}, {"subject": "ben"}):
            answer = await system.post("/chat", words("s1", **fields))
            assert (answer.status_code, answer.json()["code"]) == (409, "binding_conflict")
        unknown = await system.post("/chat", words("s1", profile="nobody"))
        assert (unknown.status_code, unknown.json()["code"]) == (422, "unknown_profile")
        assert (await steer(system, "s1", profile="assistant", subject="anna"))["delivery"] == "promoted"


async def test_r38_nobody_else_steers(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.post("/chat", {"session_id": "s1", "content": "hi"}, headers=ALICE)
        foreign = await system.post("/chat", words("s1"), headers=BOB)
        absent = await system.post("/chat", words("absent"), headers=BOB)
        assert foreign.status_code == 404 and foreign.content == absent.content


async def test_r74_promoted_steering_waits_for_a_live_turn_of_another_profile(database_url: str, temporal_address: str) -> None:
    go_on = asyncio.Event()
    scripted = script(waits(go_on, "one", "two"), says("three"))
    async with running_system(database_url, temporal_address, scripted) as system:
        answer = asyncio.create_task(system.chat("s1"))
        await system.until(lambda: scripted.requests)
        taken = await steer(system, "s1", profile="other")
        assert taken["delivery"] == "promoted"
        assert (await system.get("/sessions/s1"))["live_turn"]["turn_id"] != taken["turn_id"]
        go_on.set()
        assert (await answer)["error"] is None
        await system.idle("s1", 2)
        assert [event["type"] for event in await system.events("s1") if event["turn_id"] == taken["turn_id"]][-1] == "turn.completed"


async def test_steering_insists_on_a_revision_and_on_ids_of_its_own(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        turn = await system.chat("s1", id="m1")
        late = await system.post("/chat", words("s1", expected_revision=turn["revision"] - 1))
        assert (late.status_code, late.json()["code"], late.json()["revision"]) == (409, "conversation_conflict", turn["revision"])
        for fields in ({"id": "m1"}, {"turn_id": turn["turn_id"]}):
            taken = await system.post("/chat", words("s1", **fields))
            assert (taken.status_code, taken.json()["code"]) == (409, "duplicate_id")


@pytest.mark.parametrize("field", ["parent_id", "config", "host_context", "when_busy"])
async def test_what_does_not_belong_to_steering_is_named(database_url: str, temporal_address: str, field: str) -> None:
    values: dict[str, Any] = {"parent_id": "m1", "config": {}, "host_context": {"version": 1}, "when_busy": "enqueue"}
    async with running_system(database_url, temporal_address) as system:
        answer = await system.post("/chat", words("s1", **{field: values[field]}))
        assert answer.status_code == 422 and f"`{field}` does not belong to steering" in answer.json()["detail"]


async def test_r147_r152_steering_behind_a_host_action_or_a_cancel_stays_pending(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), hangs("par"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        assert (await steer(system, "s1", id="g1"))["delivery"] == "queued"
        resumed = asyncio.create_task(system.resume("s1", "c1"))
        await system.until(lambda: len(scripted.requests) == 2)
        await system.post("/sessions/s1/cancel")
        assert (await resumed).json()["error"]["type"] == "cancelled"
        rows = await system.messages("s1")
        assert [row["steering"]["status"] for row in rows if row["steering"]] == ["pending"]
