"""Results of activities that never reach the workflow although their transaction was committed: what was announced stays as it is."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.everything import session_of, told, verifying
from tests.model.invariants import check_rows
from tests.models import calls, raises, says, script
from tests.replay.telling import Between, asked, losing
from tests.system import System, running_system

Asked = Callable[[str, Any], bool]


def ended(state: str) -> Asked:
    """Steps that ended a turn so."""
    return lambda name, done: name == "run_step" and done.state == state


async def test_s45_a_turn_stays_as_it_was_announced_though_its_step_was_never_heard_of(database_url: str, temporal_address: str) -> None:
    between = Between()
    ask = calls(("c1", "open_page", {"url": "u"}), ("c2", "open_page", {"url": "u"}))
    async with running_system(database_url, temporal_address, script(says("hi")), interceptors=[between]) as system:
        await system.chat("answered")
        between.after = losing(ended("answered"))
        assert (await system.chat("answered"))["content"] == "hi"
        await check_rows(system, "answered")

        between.after = losing(ended("paused"))
        system.script.then(ask, says("done"))
        pending = (await system.chat("paused"))["pending_tool_call"]
        await check_rows(system, "paused")
        between.after = Between().after
        answers = [await system.resume("paused", call["call_id"]) for call in (pending, *pending["queued"])]
        assert [(answer.status_code, answer.json()["content"]) for answer in answers] == [(200, ""), (200, "done")]

        between.after = losing(ended("failed"))
        system.script.then(raises(ValueError("a bug")), says("better"))
        failed = await system.chat("failed")
        await check_rows(system, "failed")
        between.after = Between().after
        answer = await system.post(f"/sessions/failed/turns/{failed['turn_id']}/retry")
        assert (answer.status_code, failed["error"]["retry_allowed"]) == ((200, True) if failed["error"]["retry_allowed"] else (409, False))
        await check_rows(system, "failed")
        await derivable(system, database_url, "answered", "paused", "failed")


@pytest.mark.parametrize("cancelled", [False, True])
async def test_r105_a_hosts_call_stays_pending_though_the_last_tool_beside_it_was_never_heard_of(
    database_url: str, temporal_address: str, cancelled: bool
) -> None:
    between, go_on = Between(), asyncio.Event()
    ask = calls(("s1", "add", {"a": 1, "b": 2}), ("c1", "open_page", {"url": "u"}))
    async with running_system(database_url, temporal_address, script(ask, says("done")), interceptors=[between]) as system:
        between.after = losing(lambda name, done: name == "run_tool", once=go_on if cancelled else None)
        turn = (await system.submit("s"))["turn_id"]
        await system.until(lambda: paused(system))
        if cancelled:  # by who had looked at the rows before that
            await system.workflow("s").execute_update("cancel", asked(system, turn_id=turn))
            go_on.set()
        pending = (await system.until(lambda: waiting(system)))["tool_call_id"]
        await check_rows(system, "s")
        answer = await system.resume("s", pending)
        assert (answer.status_code, answer.json().get("content")) == (200, "done"), answer.text
        await check_rows(system, "s")
        await derivable(system, database_url, "s")


async def derivable(system: System, database_url: str, *sessions: str) -> None:
    """What the workflow was told late is in its history nevertheless."""
    async with verifying(system, database_url) as verifier:
        for session in sessions:
            verdict = await verifier.verify(await session_of(system, session))
            assert (verdict.state, told(verdict)) == ("same", []), (session, told(verdict))


async def test_r26_writes_whose_answers_were_lost_answer_again_what_they_did(database_url: str, temporal_address: str) -> None:
    between, lost = Between(), set[str]()
    writes = ("repair_calls", "amend_session", "post_card", "hand_over", "note_steering", "record_refusal")

    def once(name: str, done: Any) -> bool:
        first = name not in lost and name in writes
        lost.add(name)
        return first

    two = calls(("c1", "open_page", {"url": "u"}), ("c2", "open_page", {"url": "u"}))
    async with running_system(database_url, temporal_address, script(two, two, says("hi")), interceptors=[between]) as system:
        between.after = losing(once)
        await system.chat("s")
        assert (await system.resume("s", "c1")).status_code == 200
        assert (await system.post("/sessions/s/repair")).json() == {"session_id": "s", "cleared_pending": "c2", "repaired_calls": ["c2"]}
        await check_rows(system, "s")

        pending = (await system.chat("s"))["pending_tool_call"]
        leaf = (await system.messages("s"))[1]["id"]
        assert (await system.http.patch("/api/sessions/s", json={"active_leaf_id": leaf})).status_code == 200
        await check_rows(system, "s")
        await system.workflow("s").signal("host_result", asked(system, tool_call_id=pending["call_id"]))
        refusals = await system.until(lambda: system.workflow("s").query("refusals"))
        assert [refusal["code"] for refusal in refusals] == ["already_recorded"]

        card = {"segments": [{"kind": "component", "type": "note"}]}
        assert (await system.post("/sessions/s/messages", card)).status_code == 201
        await check_rows(system, "s")
        steered = await system.post("/chat", {"session_id": "s", "content": "brief", "message_type": "steering"})
        assert (steered.status_code, steered.json()["delivery"]) == (202, "promoted")
        await system.idle("s", 4)
        await check_rows(system, "s")
        assert lost >= set(writes)
        assert [event["type"] for event in await system.events("s")].count("input.refused") == 1


async def test_s58_reminders_whose_answers_were_lost_are_announced_once(database_url: str, temporal_address: str) -> None:
    between, lost = Between(), list[str]()

    def twice(name: str, done: Any) -> bool:
        lost.append(name)
        return name == "remind" and lost.count(name) <= 2

    patient = {"description": "Waits.", "remind_seconds": 0.2}
    contexts = {"version": 1, "actions": [{"name": "one", **patient}, {"name": "two", **patient}]}
    scripted = script(calls(("c1", "one", {}), ("c2", "two", {})))
    async with running_system(database_url, temporal_address, scripted, interceptors=[between]) as system:
        between.after = losing(twice)
        await system.chat("s", host_context=contexts, config={"handover": "all"})
        await system.until(lambda: lost.count("remind") == 4)  # both have been written for good
        await system.recorded("host_action.reminder", 2)
        told = [event for event in await system.events("s") if event["type"] == "host_action.reminder"]
        assert [event["pending_action"]["tool_call_id"] for event in told] == ["c1", "c2"]


async def paused(system: System) -> bool:
    return bool(await system.conn.fetchval("select count(*) from turns where state = 'waiting'"))


async def waiting(system: System) -> Any:
    return (await system.get("/sessions/s"))["pending_action"]
