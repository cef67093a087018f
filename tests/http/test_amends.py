"""Changes of a session's own fields over HTTP."""

from typing import Any

import httpx
import pytest

from tests.models import calls, hangs, says, script
from tests.system import Answer, System, running_system

ALICE = {"x-test-principal": "alice"}
BOB = {"x-test-principal": "bob"}


async def patch(system: System, session: str, body: Any, **options: Any) -> httpx.Response:
    return await system.http.patch(f"/api/sessions/{session}", json=body, **options)


async def changed(system: System, session: str, **fields: Any) -> Answer:
    answer = await patch(system, session, fields)
    assert answer.status_code == 200, answer.text
    view: Answer = answer.json()
    assert view == await system.get(f"/sessions/{session}")
    return view


async def sees(system: System, headers: dict[str, str]) -> bool:
    return (await system.http.get("/api/sessions/s1", headers=headers)).status_code == 200


async def test_r41_an_admin_gives_a_session_to_bob_and_then_to_nobody(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, apis=2) as system:
        await system.post("/chat", {"session_id": "s1", "content": "hi"}, headers=ALICE)
        revision = (await system.get("/sessions/s1"))["revision"]
        assert (await changed(system, "s1", owner_id="bob"))["owner_id"] == "bob"
        assert (await sees(system, ALICE), await sees(system, BOB)) == (False, True)
        answer = await system.post("/chat", {"session_id": "s1", "content": "mine?"}, headers=BOB, api=1)
        assert answer.status_code == 200
        assert (await system.post("/chat", {"session_id": "s1", "content": "mine?"}, headers=ALICE)).status_code == 404
        view = await changed(system, "s1", owner_id=None)
        assert (view["owner_id"], view["revision"]) == (None, answer.json()["revision"])
        assert revision < view["revision"]
        assert (await sees(system, ALICE), await sees(system, BOB)) == (False, False)
        assert (await system.post("/chat", {"session_id": "s1", "content": "x"}, headers=BOB)).status_code == 404
        await system.chat("s1", "an admin may")


async def test_r46_only_an_admin_changes_the_owner(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.post("/chat", {"session_id": "s1", "content": "hi"}, headers=ALICE)
        own = await patch(system, "s1", {"owner_id": "bob"}, headers=ALICE)
        assert (own.status_code, own.json()["code"]) == (403, "forbidden")
        foreign = await patch(system, "s1", {"owner_id": "bob"}, headers=BOB)
        absent = await patch(system, "absent", {"owner_id": "bob"}, headers=BOB)
        assert foreign.status_code == 404 and foreign.content == absent.content
        assert (await patch(system, "s1", {"title": "mine"}, headers=ALICE)).status_code == 200
        assert (await patch(system, "s1", {"title": "yours"}, headers=BOB)).status_code == 404
        assert (await system.get("/sessions/s1"))["title"] == "mine"


async def test_a_title_is_set_and_taken_away_also_while_a_turn_runs(database_url: str, temporal_address: str) -> None:
    scripted = script(hangs("par"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.submit("s1")
        await system.until(lambda: scripted.requests)
        moved = await patch(system, "s1", {"active_leaf_id": "x"})
        assert (moved.status_code, moved.json()["code"]) == (409, "busy")
        view = await changed(system, "s1", title="Orders")
        assert (view["title"], (await system.get("/sessions"))["sessions"][0]["title"]) == ("Orders", "Orders")
        assert (await changed(system, "s1", owner_id="bob", title=None))["owner_id"] == "bob"
        assert (await system.get("/sessions/s1"))["live_turn"] is not None
        await system.post("/sessions/s1/cancel")
        view = await system.until(lambda: idle(system, "s1"))
        assert (view["title"], view["owner_id"]) == (None, "bob")
        assert (await system.workflow("s1").query("head"))["owner"] == "bob"


async def idle(system: System, session: str) -> Answer | None:
    view: Answer = await system.get(f"/sessions/{session}")
    return view if view["live_turn"] is None else None


async def test_the_active_leaf_moves_and_supersedes_what_is_pending(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hello"), calls(("c1", "open_page", {"url": "u"})), says("again"))
    async with running_system(database_url, temporal_address, scripted) as system:
        first = await system.chat("s1")
        asked = await system.chat("s1", "open it")
        unknown = await patch(system, "s1", {"active_leaf_id": "nope"})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")
        assert (await system.get("/sessions/s1"))["pending_action"]["tool_call_id"] == "c1"
        late = await patch(system, "s1", {"active_leaf_id": first["message_id"], "expected_revision": 1})
        assert (late.status_code, late.json()["code"]) == (409, "conversation_conflict")
        view = await changed(system, "s1", active_leaf_id=first["message_id"])
        assert (view["active_leaf_id"], view["pending_action"], view["revision"]) == (first["message_id"], None, asked["revision"] + 1)
        late = await system.resume("s1", "c1")
        assert (late.status_code, late.json()["recorded_status"]) == (409, "superseded")
        await system.chat("s1", "from there")
        assert [row["content"] for row in await system.messages("s1")] == ["hello", "hello", "from there", "again"]


@pytest.mark.parametrize(
    "body",
    [{}, {"title": ""}, {"title": "x" * 201}, {"active_leaf_id": None}, {"active_leaf_id": ".."}, {"subject": "x"}, {"owner_id": ""}],
)
async def test_a_change_that_makes_no_sense_is_422(database_url: str, temporal_address: str, body: Answer) -> None:
    async with running_system(database_url, temporal_address) as system:
        assert (await patch(system, "s1", body)).status_code == 422
