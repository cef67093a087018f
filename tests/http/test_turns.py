"""Turns over HTTP: order, events, streams, waiting; everything is real but the model."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import httpx
import pytest

from activities.db.reads import Reads
from api import waiting
from api.access import identify
from api.app import create_app
from tests.http.conftest import served
from tests.http.sse import Frame, opened, shown_text, take, until_turn_ends
from tests.models import Script, calls, hangs, says, script, waits
from tests.services import PATIENCE_SECONDS
from tests.system import System, callers_of, running_system


@asynccontextmanager
async def live(database_url: str, temporal_address: str, scripted: Script) -> AsyncIterator[tuple[System, httpx.AsyncClient]]:
    """The system, with one more api behind a socket, so that streams stream."""
    async with running_system(database_url, temporal_address, scripted) as system:
        app = create_app(system.settings, temporal_address=temporal_address)
        app.dependency_overrides[identify] = callers_of(system.tenant)
        async with served(app) as client:
            yield system, client


def talkative() -> Script:
    """Thinking, text, two tool calls at once, text."""
    return script(
        calls(("c1", "add", {"a": 1, "b": 2}), ("c2", "broken", {}), text="Let me see: "), says("it is ", "drei 👋", thinking="hm, three")
    )


async def test_r76_r77_the_events_of_a_turn(database_url: str, temporal_address: str, session: str) -> None:
    async with live(database_url, temporal_address, talkative()) as (system, client):
        async with opened(client, "/api/chat/stream", method="POST", json={"session_id": session, "content": "add", "id": "u1"}) as (
            head,
            frames,
        ):
            assert (head.status_code, head.headers["x-session-id"]) == (200, session)
            events = [frame async for frame in frames]
        types = [frame.type for frame in events]
        assert types[0] == "turn.started" and types[-2:] == ["turn.final", "turn.completed"]
        assert "turn.error" not in types
        for once in ("turn.started", "turn.final", "turn.completed"):
            assert types.count(once) == 1
        order = [kind for kind in types if kind not in ("message.recorded",)]
        assert order.index("text.delta") < order.index("tool.call") < order.index("tool.result") < order.index("thinking.delta")
        tools = [frame for frame in events if frame.type == "tool.call"]
        assert [(tool.data["call_id"], tool.data["arguments"]) for tool in tools] == [("c1", {"a": 1, "b": 2}), ("c2", {})]
        assert {frame.data["category"] for frame in tools} == {"server"}
        assert [frame.data["output"] for frame in events if frame.type == "tool.result"] == [3]
        assert [frame.data["call_id"] for frame in events if frame.type == "tool.error"] == ["c2"]
        final = events[-2].own | {"session_id": session, "turn_id": events[-2].data["turn_id"]}
        assert final == (await system.post("/chat", {"session_id": session, "content": "add", "id": "u1"})).json()
        row = (await system.messages(session))[1]
        assert [segment["kind"] for segment in row["segments"]] == ["text", "tool_group", "thinking", "text"]
        texts = {number: segment["text"] for number, segment in enumerate(row["segments"]) if segment["kind"] == "text"}
        assert shown_text(events) == texts
        assert row["content"] == final["content"] == "Let me see: it is drei 👋"
        recorded = [frame.data["message"] for frame in events if frame.type == "message.recorded"]
        assert recorded[-1] == row
        assert (final["usage"]["requests"], final["usage"]["tool_calls"]) == (2, 2)
        assert final["usage"]["total_tokens"] == final["usage"]["input_tokens"] + final["usage"]["output_tokens"]


async def test_who_waits_for_an_answer_looks_when_a_turn_ends(
    database_url: str, temporal_address: str, session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at each commit of a turn that has many."""
    looks: list[str] = []
    look = Reads.turn

    async def noted(self: Reads, session_uid: UUID, turn_id: str) -> Any:
        looks.append(turn_id)
        return await look(self, session_uid, turn_id)

    monkeypatch.setattr(Reads, "turn", noted)
    monkeypatch.setattr(waiting, "LOOK_ANYWAY_SECONDS", PATIENCE_SECONDS)
    async with running_system(database_url, temporal_address, talkative()) as system:
        answer = await system.chat(session)
        assert answer["content"] == "Let me see: it is drei 👋"
        assert 1 <= len(looks) <= 2


async def test_l24_a_real_turn_is_resumed_at_every_event(database_url: str, temporal_address: str, session: str) -> None:
    async with live(database_url, temporal_address, talkative()) as (system, client):
        accepted = await system.submit(session, "add")
        live_frames = await until_turn_ends(client, f"{accepted['events']}&until=turn")
        await system.chat(session, "again")
        url = f"/api/sessions/{session}/events?until=turn"
        stored = await until_turn_ends(client, url)
        assert await until_turn_ends(client, f"{url}&after=0.0") == stored
        assert [frame for frame in stored if not frame.type.endswith(".delta")] == [
            frame for frame in live_frames if not frame.type.endswith(".delta")
        ]
        assert shown_text(stored) == shown_text(live_frames)
        for index in range(len(live_frames) - 1):
            rest = await until_turn_ends(client, f"{url}&after={live_frames[index].id}")
            assert shown_text(live_frames[: index + 1] + rest) == shown_text(stored)
            assert [frame.id for frame in rest if not frame.type.endswith(".delta")] == [
                frame.id for frame in live_frames[index + 1 :] if not frame.type.endswith(".delta")
            ]


async def test_r79_a_reader_that_left_in_the_middle_gets_the_rest(database_url: str, temporal_address: str, session: str) -> None:
    go_on = asyncio.Event()
    async with live(database_url, temporal_address, script(waits(go_on, "one ", "two ", "three"))) as (system, client):
        accepted = await system.submit(session)
        seen: list[Frame] = []
        async with opened(client, accepted["events"]) as (_, frames):
            while "".join(shown_text(seen).values()) != "one two ":
                seen.append(await anext(frames))
        go_on.set()
        rest = await until_turn_ends(client, f"/api/sessions/{session}/events?until=turn", **{"Last-Event-ID": seen[-1].id})
        assert shown_text(seen + rest) == {0: "one two three"}
        assert len(system.script.requests) == 1
        late = await take(client, f"/api/sessions/{session}/events", len(rest))
        assert late[0].type == "turn.started"


async def test_s31_a_streamed_first_turn_says_its_id_and_is_listed_while_it_runs(database_url: str, temporal_address: str) -> None:
    go_on = asyncio.Event()
    async with (
        live(database_url, temporal_address, script(waits(go_on, "a", "b"))) as (system, client),
        opened(client, "/api/chat/stream", method="POST", json={"content": "hi"}) as (head, frames),
    ):
        issued = head.headers["x-session-id"]
        assert (await anext(frames)).data["session_id"] == issued
        assert [(line["session_id"], line["status"]) for line in (await system.get("/sessions"))["sessions"]] == [(issued, "running")]
        view = await system.get(f"/sessions/{issued}")
        assert view["live_turn"]["turn_number"] == 1
        go_on.set()
        assert [frame.type async for frame in frames][-1] == "turn.completed"


async def test_s33_what_turn_completed_speaks_of_is_committed(database_url: str, temporal_address: str, session: str) -> None:
    async with live(database_url, temporal_address, script(says("x"))) as (system, client):
        for number in range(5):
            body = {"session_id": session, "content": "hi"}
            async with opened(client, "/api/chat/stream", method="POST", json=body) as (_, frames):
                async for frame in frames:
                    if frame.type == "turn.completed":
                        view = await system.get(f"/sessions/{session}")
                        assert (view["status"], view["turn_number"], view["message_count"]) == ("idle", number + 1, 2 * number + 2)


async def test_r72_a_message_cancels_the_live_turn_and_comes_after_it(database_url: str, temporal_address: str, session: str) -> None:
    async with live(database_url, temporal_address, script(hangs("partial "), says("second"))) as (system, client):
        waiting = asyncio.create_task(system.chat(session, "first", id="u1"))
        await system.until(lambda: system.script.requests)
        async with opened(client, f"/api/sessions/{session}/events") as (_, frames):
            while (await anext(frames)).type != "text.delta":
                pass
        second = await system.chat(session, "second", id="u2")
        first = await waiting
        assert (first["error"]["type"], first["error"]["retry_allowed"], first["content"]) == ("cancelled", False, "partial ")
        assert (second["content"], second["error"], second["turn_number"]) == ("second", None, 2)
        rows = await system.messages(session)
        assert [row["id"] for row in rows] == ["u1", first["message_id"], "u2", second["message_id"]]
        assert rows[1]["content"] == "partial " and rows[1]["error"]["type"] == "cancelled"


async def test_r73_a_continuation_waits_for_the_live_turn(database_url: str, temporal_address: str, session: str) -> None:
    """The workflow sends it back after a moment; the api brings it again when the turn has ended."""
    go_on = asyncio.Event()
    asks = calls(("c1", "open_page", {"url": "u"}), ("c2", "wait_for", {"seconds": 3.0}))
    async with live(database_url, temporal_address, script(asks, says("done"))) as (system, _):
        asked = asyncio.create_task(system.chat(session, "go"))
        await system.until(lambda: system.conn.fetchval("select true from calls where call_id = 'c1'"))
        answer = await system.resume(session, "c1", {"ok": True})
        go_on.set()
        first = await asked
        assert first["error"] is None and first["pending_tool_call"]["call_id"] == "c1"
        assert (answer.status_code, answer.json()["content"], answer.json()["turn_number"]) == (200, "done", 2)


async def test_r78_what_does_not_fit_is_refused_before_any_stream(database_url: str, temporal_address: str, session: str) -> None:
    async with live(database_url, temporal_address, script(says("x"))) as (system, client):
        await system.chat(session, subject="a")
        for body, code in (
            ({"content": "x", "parent_id": "nope"}, "unknown_parent"),
            ({"tool_call_id": "c1", "tool_result": 1}, "not_pending"),
            ({"content": "x", "expected_revision": 99}, "conversation_conflict"),
            ({"content": "x", "profile": "other"}, "binding_conflict"),
        ):
            answer = await client.post("/api/chat/stream", json={"session_id": session, **body})
            assert (answer.status_code, answer.json()["code"]) == (409, code)
            assert answer.headers["content-type"] == "application/problem+json"


async def test_r75_sessions_run_side_by_side(database_url: str, temporal_address: str, session: str) -> None:
    go_on = asyncio.Event()
    async with live(database_url, temporal_address, script(waits(go_on, "a", "b"))) as (system, _):
        turns = [asyncio.create_task(system.chat(f"{session}-{number}")) for number in range(6)]
        await system.until(lambda: len(system.script.requests) == 6)
        go_on.set()
        assert [turn["content"] for turn in await asyncio.gather(*turns)] == ["ab"] * 6


async def test_r91_r104_cancel_from_another_caller(database_url: str, temporal_address: str, session: str) -> None:
    async with live(database_url, temporal_address, script(hangs("some text"))) as (system, client):
        waiting = asyncio.create_task(system.chat(session, turn_id="t1"))
        await system.until(lambda: system.script.requests)
        async with opened(client, f"/api/sessions/{session}/events?after=before:t1") as (_, frames):
            while (await anext(frames)).type != "text.delta":
                pass
        assert (await system.post(f"/sessions/{session}/cancel")).json() == {"cancel_requested": True, "turn_id": "t1"}
        answer = await waiting
        assert (answer["error"]["type"], answer["content"]) == ("cancelled", "some text")
        assert (await system.post(f"/sessions/{session}/cancel")).json()["cancel_requested"] is False
        events = await until_turn_ends(client, f"/api/sessions/{session}/events?until=turn")
        assert [frame.type for frame in events][-3:] == ["turn.final", "turn.error", "turn.completed"]
        assert events[-2].data["error"] == answer["error"] and events[-2].data["type"] == "turn.error"


async def test_a_wait_that_runs_out_answers_202_and_the_turn_goes_on(database_url: str, temporal_address: str, session: str) -> None:
    go_on = asyncio.Event()
    async with live(database_url, temporal_address, script(waits(go_on, "a", "b"))) as (system, client):
        answer = await system.post("/chat", {"session_id": session, "content": "hi"}, headers={"prefer": "wait=1"})
        assert answer.status_code == 202
        go_on.set()
        events = await until_turn_ends(client, f"{answer.json()['events']}&until=turn")
        assert events[-2].data["content"] == "ab"
