"""What a message wants of a busy session, how a batch is handed over, and what time does to host actions: over HTTP."""

import asyncio
from typing import Any

from pydantic_ai.messages import ModelMessage, UserPromptPart

from tests.models import calls, hangs, says, script, waits
from tests.system import running_system


def prompts(messages: list[ModelMessage]) -> list[str]:
    return [str(part.content) for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


async def test_enqueue_waits_its_turn_and_reject_is_busy(database_url: str, temporal_address: str) -> None:
    go_on = asyncio.Event()
    scripted = script(waits(go_on, "one", "two"), says("three"))
    async with running_system(database_url, temporal_address, scripted) as system:
        first = asyncio.create_task(system.chat("s1", "first"))
        await system.until(lambda: scripted.requests)
        second = asyncio.create_task(system.chat("s1", "second", when_busy="enqueue"))
        refused = await system.post("/chat", {"session_id": "s1", "content": "third", "when_busy": "reject"})
        assert (refused.status_code, refused.json()["code"]) == (409, "busy")
        go_on.set()
        answers = [await first, await second]
        assert [(answer["content"], answer["error"], answer["turn_number"]) for answer in answers] == [
            ("onetwo", None, 1),
            ("three", None, 2),
        ]
        assert prompts(scripted.requests[1]) == ["first", "second"]


async def test_reject_is_busy_while_the_host_is_waited_for(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("done"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        refused = await system.post("/chat", {"session_id": "s1", "content": "more", "when_busy": "reject"})
        assert (refused.status_code, refused.json()["code"]) == (409, "busy")
        await system.resume("s1", "c1")
        assert (await system.chat("s1", "more", when_busy="reject"))["content"] == "done"


async def test_replace_hides_the_abandoned_exchange_from_the_model(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hello"), hangs("par"), calls(("c1", "open_page", {"url": "u"})), says("better"))
    async with running_system(database_url, temporal_address, scripted) as system:
        root = await system.chat("s1", "hi")
        abandoned = asyncio.create_task(system.chat("s1", "worse", id="m2"))
        await system.until(lambda: len(scripted.requests) == 2)
        asked = await system.chat("s1", "bad", id="m3", when_busy="replace")
        assert (await abandoned)["error"]["type"] == "cancelled"
        assert asked["pending_tool_call"]["call_id"] == "c1"
        await system.chat("s1", "good", id="m4", when_busy="replace")
        assert [prompts(request) for request in scripted.requests[2:]] == [["hi", "bad"], ["hi", "good"]]
        tree = {row["id"]: row["parent_id"] for row in (await system.get("/sessions/s1/tree"))["messages"]}
        assert tree["m2"] == tree["m3"] == tree["m4"] == root["message_id"]
        assert (await system.resume("s1", "c1")).json()["recorded_status"] == "superseded"


async def test_handover_all_takes_results_in_any_order(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"}), ("c2", "ask_user", {"question": "q"})), says("done"))
    async with running_system(database_url, temporal_address, scripted) as system:
        asked = await system.chat("s1", config={"handover": "all"})
        pending = asked["pending_tool_call"]
        assert (pending["call_id"], [call["call_id"] for call in pending["queued"]]) == ("c1", ["c2"])
        second = (await system.resume("s1", "c2", "yes")).json()
        assert (second["pending_tool_call"]["call_id"], second["pending_tool_call"]["queued"]) == ("c1", [])
        assert (await system.resume("s1", "c1", "open")).json()["content"] == "done"
        assert [part.content for part in scripted.results()] == ["open", "yes"]


async def test_s58_deadline_and_reminder_of_a_declared_action(database_url: str, temporal_address: str) -> None:
    action = {"name": "quick", "description": "Quick.", "deadline_seconds": 4, "remind_seconds": 0.5}
    scripted = script(calls(("c1", "quick", {})), says("I don't know."))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", host_context={"version": 1, "actions": [action]})
        [waiting] = (await system.get("/host-actions"))["host_actions"]
        assert (waiting["tool_call_id"], waiting["requested_at"] < waiting["deadline_at"]) == ("c1", True)

        async def seen() -> Any:
            events = await system.events("s1")
            return events if [event["type"] for event in events].count("turn.completed") == 2 else None

        events = await system.until(seen)
        told = [event for event in events if event["type"].startswith("host_action.")]
        kinds = [event["type"] for event in told]
        assert kinds == ["host_action.pending", *["host_action.reminder"] * (len(told) - 2), "host_action.expired"] and len(told) > 2
        actions = [event["pending_action"] for event in told]
        assert all(shown == actions[0] for shown in actions) and actions[0]["tool_call_id"] == "c1"
        tool = (await system.messages("s1"))[1]["segments"][0]["tools"][0]
        assert (tool["outcome"], tool["status"]) == ("interrupted", "unknown")
        late = await system.resume("s1", "c1")
        assert (late.status_code, late.json()["recorded_status"]) == (409, "unknown")
        assert (await system.get("/sessions/s1"))["pending_action"] is None


async def test_s58_a_deadline_outlives_the_workflow_that_knew_it(database_url: str, temporal_address: str) -> None:
    """The rows know it, so a session that is begun again from them keeps to it."""
    action = {"name": "slow", "description": "Slow.", "deadline_seconds": 3600}
    async with running_system(database_url, temporal_address, script(calls(("c1", "slow", {})), says("I don't know."))) as system:
        await system.chat("s1", host_context={"version": 1, "actions": [action]})
        await system.workflow("s1").terminate()
        await system.conn.execute("update calls set deadline_at = now() + interval '1 s'")
        assert (await system.post("/sessions/s1/cancel")).status_code == 200
        await system.until(lambda: system.conn.fetchval("select status = 'unknown' from calls"))
        waited = await system.conn.fetchval("select recorded_at >= deadline_at and recorded_at < deadline_at + interval '30s' from calls")
        assert waited


async def test_r104_a_turn_that_another_caller_cancels_is_answered_with_what_was_kept(database_url: str, temporal_address: str) -> None:
    scripted = script(hangs("par", "tial"))
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        waiting = await system.running("s1", "hello", turn_id="t1")
        cancelled = await system.post("/sessions/s1/cancel", {"turn_id": "t1"}, api=1)
        assert cancelled.json() == {"cancel_requested": True, "turn_id": "t1"}
        answer = await waiting
        assert (answer["content"][:3], answer["error"]["type"], answer["error"]["retry_allowed"]) == ("par", "cancelled", False)
