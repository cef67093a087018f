"""Host actions over HTTP: asked, answered once, superseded, repaired; everything is real but the model."""

import asyncio
from typing import Any

import httpx
import pytest

from tests.models import Behaviour, calls, raises, says, script
from tests.system import System, running_system

ONE = calls(("c1", "open_page", {"url": "https://example.org"}), text="Opening. ")
TWO = calls(("c1", "open_page", {"url": "u1"}), ("c2", "ask_user", {"question": "really?"}))
FOUR = calls(*((f"c{number}", "open_page", {"url": f"u{number}"}) for number in range(1, 5)))


def ids(calls_of: list[dict[str, Any]]) -> list[str]:
    return [call["call_id"] for call in calls_of]


async def tools(system: System, session: str) -> dict[str, dict[str, Any]]:
    """The tool calls of a session's active path, by id."""
    return {
        tool["id"]: tool
        for row in await system.messages(session)
        for segment in row["segments"]
        if segment["kind"] == "tool_group"
        for tool in segment["tools"]
    }


def refused(answer: httpx.Response, code: str, recorded: str | None = None) -> bool:
    problem = answer.json()
    return (answer.status_code, problem["code"], problem.get("recorded_status")) == (409, code, recorded)


async def test_r106_what_waits_is_shown_alike_everywhere(database_url: str, temporal_address: str, session: str) -> None:
    async with running_system(database_url, temporal_address, script(TWO), apis=2) as system:
        asked = (await system.chat(session))["pending_tool_call"]
        token = asked.pop("pause_token")
        assert asked == {
            "tool_name": "open_page",
            "call_id": "c1",
            "arguments": {"url": "u1"},
            "queued": [{"call_id": "c2", "tool_name": "ask_user", "arguments": {"question": "really?"}}],
        }
        view = (await system.get(f"/sessions/{session}", api=1))["pending_action"]
        assert view["pause_token"] == token
        (listed,) = (await system.get("/host-actions", api=1))["host_actions"]
        assert listed == {"session_id": session, **view}
        assert {"tool_name": view["tool_name"], "call_id": view["tool_call_id"], "arguments": view["arguments"]} == {
            key: asked[key] for key in ("tool_name", "call_id", "arguments")
        }
        assert view["queued"] == asked["queued"] and view["assistant_message_id"] == (await system.messages(session))[1]["id"]


async def test_r114_a_recorded_result_stays(database_url: str, temporal_address: str, session: str) -> None:
    async with running_system(database_url, temporal_address, script(ONE, says("done")), apis=2) as system:
        await system.chat(session)
        assert (await system.resume(session, "c1", {"opened": True})).status_code == 200
        for api in range(2):
            body = {"session_id": session, "tool_call_id": "c1", "tool_result": "other"}
            for path in ("/chat", "/chat/stream", "/chat?wait=false"):
                answer = await system.post(path, body, api=api)
                assert refused(answer, "already_recorded", "completed")
                assert "completed" in answer.json()["detail"] and answer.json()["tool_call_id"] == "c1"
        assert len(system.script.requests) == 2
        assert (await tools(system, session))["c1"]["output"] == {"opened": True}


async def test_r114_two_hosts_at_once_and_one_is_taken(database_url: str, temporal_address: str, session: str) -> None:
    async with running_system(database_url, temporal_address, script(ONE, says("done")), apis=2) as system:
        await system.chat(session)
        results = [
            system.post("/chat", {"session_id": session, "tool_call_id": "c1", "tool_result": number}, api=number % 2)
            for number in range(8)
        ]
        answers = await asyncio.gather(*results)
        taken = [number for number, answer in enumerate(answers) if answer.status_code == 200]
        assert len(taken) == 1
        assert all(refused(answer, "already_recorded", "completed") for answer in answers if answer.status_code != 200)
        assert (await tools(system, session))["c1"]["output"] == taken[0]
        assert len(system.script.requests) == 2


@pytest.mark.parametrize("outcome", ["failed", "denied"])
async def test_r117_what_the_host_could_not_do(database_url: str, temporal_address: str, session: str, outcome: str) -> None:
    async with running_system(database_url, temporal_address, script(ONE, says("I see"))) as system:
        await system.chat(session)
        answer = await system.resume(session, "c1", {"error": "no such page"}, tool_outcome=outcome)
        assert answer.json()["content"] == "I see"
        tool = (await tools(system, session))["c1"]
        assert (tool["outcome"], tool["status"], tool["output"]) == (outcome, outcome, {"error": "no such page"})
        assert "no such page" in str(system.script.results()[0].content)
        assert (await system.get(f"/sessions/{session}"))["pending_action"] is None
        assert refused(await system.resume(session, "c1"), "already_recorded", outcome)


async def test_r120_nothing_is_pending(database_url: str, temporal_address: str, session: str) -> None:
    async with running_system(database_url, temporal_address, script(says("hi"), ONE)) as system:
        await system.chat(session)
        assert refused(await system.resume(session, "c1"), "not_pending")
        await system.chat(session)
        assert refused(await system.resume(session, "c9"), "call_mismatch")
        assert (await system.get(f"/sessions/{session}"))["pending_action"]["tool_call_id"] == "c1"


async def test_r122_a_message_supersedes_what_waits(database_url: str, temporal_address: str, session: str) -> None:
    async with running_system(database_url, temporal_address, script(TWO, says("never mind"))) as system:
        await system.chat(session)
        assert (await system.chat(session, "forget it"))["content"] == "never mind"
        for call in ("c1", "c2"):
            tool = (await tools(system, session))[call]
            assert (tool["outcome"], tool["status"]) == ("interrupted", "superseded")
            assert refused(await system.resume(session, call), "already_recorded", "superseded")
        assert (await system.get("/host-actions"))["host_actions"] == []


async def test_r124_r126_a_batch_is_handed_over_one_by_one(database_url: str, temporal_address: str, session: str) -> None:
    async with running_system(database_url, temporal_address, script(FOUR, says("all done"))) as system:
        asked = await system.chat(session)
        for number in range(1, 5):
            pending = asked["pending_tool_call"]
            assert (pending["call_id"], ids(pending["queued"])) == (f"c{number}", [f"c{later}" for later in range(number + 1, 5)])
            if number < 4:
                assert refused(await system.resume(session, "c4"), "call_mismatch")
            before = asked["message_id"]
            asked = (await system.resume(session, f"c{number}", number)).json()
            assert asked["message_id"] == before and asked["user_message_id"] is None
            assert len(system.script.requests) == (2 if number == 4 else 1)
            assert asked["content"] == ("all done" if number == 4 else "")
        assert asked["pending_tool_call"] is None and asked["turn_number"] == 5
        assert [part.content for part in system.script.results()] == ["1", "2", "3", "4"]
        assert len(await system.messages(session)) == 2


async def test_r127_a_result_outlives_the_step_that_fails_after_it(database_url: str, temporal_address: str, session: str) -> None:
    behaviours: list[Behaviour] = [ONE, raises(ValueError("a bug of the model's client"), "half a")]
    async with running_system(database_url, temporal_address, script(*behaviours)) as system:
        await system.chat(session)
        failed = (await system.resume(session, "c1", "opened")).json()
        assert failed["error"] is not None
        assert refused(await system.resume(session, "c1"), "already_recorded", "completed")
        system.script.then(says("done"))
        again = await system.post(f"/sessions/{session}/turns/{failed['turn_id']}/retry")
        assert (again.status_code, again.json()["content"], again.json()["attempt"]) == (200, "done", 2)
        assert (again.json()["turn_id"], again.json()["turn_number"]) == (failed["turn_id"], failed["turn_number"])
        late = await system.post(f"/sessions/{session}/turns/{failed['turn_id']}/retry")
        assert (late.status_code, late.json()["code"]) == (409, "not_retryable")
        unknown = await system.post(f"/sessions/{session}/turns/nope/retry")
        assert (unknown.status_code, unknown.json()["code"]) == (404, "not_found")


async def test_r129_an_action_declared_with_the_message(database_url: str, temporal_address: str, session: str) -> None:
    schema = {"type": "object", "properties": {"page": {"type": "integer"}}, "required": ["page"]}
    context = {"version": 1, "actions": [{"name": "turn_page", "description": "Turns the page", "parameters": schema}]}
    scripted = script(calls(("c1", "turn_page", {"page": 7})), says("turned"))
    async with running_system(database_url, temporal_address, scripted) as system:
        asked = await system.chat(session, host_context=context)
        assert asked["pending_tool_call"]["tool_name"] == "turn_page"
        assert (await system.resume(session, "c1", {"now": 7})).json()["content"] == "turned"
        called = [event for event in await system.events(session) if event["type"] == "tool.call"]
        assert [event["category"] for event in called] == ["host"]
        assert [part.content for part in system.script.results()] == ['{"now":7}']


async def test_r137_r139_r140_repair(database_url: str, temporal_address: str, session: str) -> None:
    async with running_system(database_url, temporal_address, script(TWO, says("on we go"))) as system:
        assert (await system.post(f"/sessions/{session}/repair")).status_code == 404
        await system.chat(session)
        mended = (await system.post(f"/sessions/{session}/repair")).json()
        assert mended == {"session_id": session, "cleared_pending": "c1", "repaired_calls": ["c1", "c2"]}
        view = await system.get(f"/sessions/{session}")
        assert (view["status"], view["pending_action"]) == ("idle", None)
        assert {tool["status"] for tool in (await tools(system, session)).values()} == {"unknown"}
        assert refused(await system.resume(session, "c1"), "already_recorded", "unknown")
        nothing: dict[str, Any] = {"session_id": session, "cleared_pending": None, "repaired_calls": []}
        assert (await system.post(f"/sessions/{session}/repair")).json() == nothing
        assert (await system.chat(session))["content"] == "on we go"


async def test_cancel_leaves_what_waits_as_it_is(database_url: str, temporal_address: str, session: str) -> None:
    async with running_system(database_url, temporal_address, script(ONE, says("done"))) as system:
        await system.chat(session)
        assert (await system.post(f"/sessions/{session}/cancel")).json() == {"cancel_requested": False, "turn_id": None}
        assert (await system.get(f"/sessions/{session}"))["status"] == "waiting_host"
        tombstone = await system.post(f"/sessions/{session}/cancel", {"turn_id": "t-later"})
        assert tombstone.json() == {"cancel_requested": True, "turn_id": "t-later"}
        late = (await system.chat(session, turn_id="t-later"))["error"]
        assert (late["type"], late["retry_allowed"]) == ("cancelled", False)
        assert len(system.script.requests) == 1


async def test_r63_a_message_whose_turn_paused_gets_that_turns_own_answer(database_url: str, temporal_address: str, session: str) -> None:
    async with running_system(database_url, temporal_address, script(ONE, says("done"))) as system:
        asked = await system.chat(session, id="u1")
        await system.resume(session, "c1")
        assert await system.chat(session, id="u1") == asked
