"""A session that continues as new again and again, in front of everything that is real but the model: nothing is lost, nothing is done twice."""

import asyncio
import json
import os
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import WorkflowHistory
from temporalio.service import RPCError

from tests.everything import rolled
from tests.model.invariants import check_rows
from tests.models import calls, says, script
from tests.replay.telling import asked
from tests.replay.test_histories import replayer
from tests.system import System, running_system
from workflows.contracts import policies
from workflows.contracts.inputs import SessionStart

MESSAGES = 500 if os.environ.get("TEST_LONG") else 24
CALLERS = 4
S = "s1"
NOTE = [{"kind": "component", "type": "note", "data": {}}]
Accepted = defaultdict[str, set[str]]


async def rolls(system: System) -> None:
    """Asks for a roll, again as soon as the session has rolled, and not more often than every thirty milliseconds."""
    handle, run = system.workflow(S), None
    while True:
        await asyncio.sleep(0.03)
        with suppress(RPCError):
            if (now := (await handle.describe()).run_id) != run:
                await handle.signal("roll")
                run = now


async def others(system: System) -> None:
    """Sends what else there is, over both apis. Refusals are fine, faults are not."""
    number, session = 0, f"/api/sessions/{S}"
    while True:
        number += 1
        for method, path, body in (
            ("POST", f"{session}/messages", {"id": f"k{number}", "content": "card", "segments": NOTE}),
            ("PATCH", session, {"title": f"t{number}"}),
            ("POST", f"{session}/cancel", {"turn_id": f"never-{number}"}),
            ("POST", "/api/chat?wait=false", {"session_id": S, "message_type": "steering", "content": "brief"}),
            ("POST", f"{session}/cancel", {}),
        ):
            keyed = {"idempotency-key": f"{path}-{number}"} if number % 3 == 0 else {}
            answer = await system.apis[number % 2].request(method, path, json=body, headers=keyed)
            assert answer.status_code < 500, answer.text


async def waiting(system: System, path: str, body: dict[str, Any]) -> None:
    """Somebody who waits for the session to be quiet, all the time."""
    while True:
        answer = await system.post(path, body)
        assert answer.status_code in (200, 409), answer.text


async def signals(system: System) -> None:
    """The same inputs by signal, some of them nonsense."""
    number, handle = 0, system.workflow(S)
    while True:
        number += 1
        for name, fields in (
            ("message", {"id": f"signal-{number}", "content": "by signal", "when_busy": "enqueue"}),
            ("host_result", {"tool_call_id": "nobody-asked"}),
            ("steer", {"id": f"g{number}", "content": "brief"}),
            ("steer", {"no": "steering"}),
        ):
            await handle.signal(name, asked(system, **fields))
            await asyncio.sleep(0.25)


@asynccontextmanager
async def beside(*loops: Awaitable[None]) -> AsyncIterator[None]:
    """Runs these beside the block. One that fails fails the test."""
    tasks = [asyncio.ensure_future(loop) for loop in loops]
    try:
        yield
    finally:
        ended = [task for task in tasks if task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in ended:
        task.result()


async def say(system: System, caller: int, number: int, accepted: Accepted) -> None:
    """Each fifth message is sent twice at once, over both apis."""
    body = {"session_id": S, "id": f"{caller}-{number}", "content": "hello", "when_busy": "interrupt" if number % 2 else "enqueue"}
    copies = 2 if number % 5 == 0 else 1
    answers = await asyncio.gather(*(system.post("/chat?wait=false", body, api=(caller + copy) % 2) for copy in range(copies)))
    for answer in answers:
        assert answer.status_code in (200, 202), answer.text
        accepted[body["id"]].add(answer.json()["turn_id"])


def refused_tasks(history: WorkflowHistory) -> set[str]:
    """Why workflow tasks failed. That a signal came while a run was to end is no fault: it is looked at first, and then the run ends."""
    failed = (event.workflow_task_failed_event_attributes for event in history.events)
    causes = {WorkflowTaskFailedCause.Name(one.cause) for one in failed if one.cause}
    return causes - {"WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND"}


async def over(system: System, ids: list[str]) -> None:
    """Waits until these messages were answered, and nothing is under way."""

    async def done() -> bool:
        found = await system.conn.fetchval("select count(*) from turns where final is not null and user_message_id = any($1)", ids)
        return bool(found == len(ids) and (await system.get(f"/sessions/{S}"))["live_turn"] is None)

    await system.until(done, 120.0)


@pytest.mark.timeout(900)
async def test_l06_l07_under_fire_each_message_is_accepted_once(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "ROLL_EVENTS", 40)
    accepted: Accepted = defaultdict(set)
    async with running_system(database_url, temporal_address, script(says("done")), apis=2) as system:
        await system.chat(S, id="first")

        async def caller(name: int) -> None:
            for number in range(MESSAGES // CALLERS):
                await say(system, name, number, accepted)

        async with beside(
            rolls(system),
            others(system),
            signals(system),
            waiting(system, "/chat", {"session_id": S, "tool_call_id": "nobody-asked", "tool_result": 1}),
            waiting(system, f"/sessions/{S}/repair", {}),
        ):
            await asyncio.gather(*(caller(name) for name in range(CALLERS)))
        assert [len(turns) for turns in accepted.values()] == [1] * (MESSAGES // CALLERS * CALLERS)
        await system.submit(S, "the last one", id="last", when_busy="enqueue")
        await over(system, [*accepted, "last"])
        await told_once(system, accepted)
        await check_rows(system, S)
        await histories_are_sound(system)


async def told_once(system: System, accepted: Accepted) -> None:
    """The rows have each message once, under the turn that was answered."""
    rows = await system.conn.fetch("select user_message_id, turn_id from turns where user_message_id is not null")
    found = Counter(row["user_message_id"] for row in rows)
    assert max(found.values()) == 1
    turns = {row["user_message_id"]: {row["turn_id"]} for row in rows}
    assert {message: turns.get(message) for message in accepted} == accepted
    assert await system.conn.fetchval("select count(*) = count(distinct id) from messages") is True


async def histories_are_sound(system: System) -> None:
    """Many short runs; no workflow task that failed; each replays."""
    histories = await system.histories(S)
    lengths = [len(history.events) for history in histories]
    assert len(lengths) > MESSAGES // 12 and max(lengths) < policies.ROLL_EVENTS * 15, lengths
    assert set().union(*map(refused_tasks, histories)) == set()
    for history in histories[-3:]:
        await replayer().replay_workflow(history)


async def answers_of_old(system: System) -> dict[str, Any]:
    """What is answered to inputs that the session had before."""
    rest: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
        ("POST", "/api/chat", {"session_id": S, "id": "m1", "content": "one"}, {}),
        ("POST", "/api/chat", {"session_id": S, "id": "m1", "content": "another"}, {}),
        ("POST", "/api/chat", {"session_id": S, "id": "new", "content": "x", "turn_id": "t1"}, {}),
        ("POST", "/api/chat", {"session_id": S, "tool_call_id": "c1", "tool_result": "again"}, {}),
        ("POST", "/api/chat?wait=false", {"session_id": S, "message_type": "steering", "id": "g1", "content": "brief"}, {}),
        ("POST", "/api/chat?wait=false", {"session_id": S, "message_type": "steering", "id": "g1", "content": "long"}, {}),
        ("POST", f"/api/sessions/{S}/messages", {"id": "k1", "content": "card", "segments": NOTE}, {}),
        ("POST", f"/api/sessions/{S}/messages", {"id": "k1", "content": "other", "segments": NOTE}, {}),
        ("POST", f"/api/sessions/{S}/cancel", {"turn_id": "never"}, {"idempotency-key": "k"}),
        ("POST", f"/api/sessions/{S}/cancel", {"turn_id": "t1"}, {}),
    ]
    told = {}
    for number, (method, path, body, headers) in enumerate(rest):
        answer = await system.apis[number % 2].request(method, path, json=body, headers=headers)
        told[f"{path} {body}"] = (answer.status_code, answer.json())
    return told


async def test_l07_what_is_older_than_what_is_carried_is_answered_as_the_young_is(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "CARRIED_IDS", 1)
    ask = [calls((call_id, "open_page", {"url": "u"})) for call_id in ("c1", "c2")]
    scripted = script(ask[0], says("done"), says("briefly"), ask[1], says("done"))
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        await system.chat(S, "one", id="m1", turn_id="t1")
        await system.resume(S, "c1")
        await system.post(f"/sessions/{S}/messages", {"id": "k1", "content": "card", "segments": NOTE})
        await system.post(f"/sessions/{S}/cancel", {"turn_id": "never"}, headers={"idempotency-key": "k"})
        await system.post("/chat?wait=false", {"session_id": S, "message_type": "steering", "id": "g1", "content": "brief"})
        await system.idle(S, 3)
        young = await answers_of_old(system)
        assert {status for status, _ in young.values()} == {200, 201, 202, 409}
        for number in range(3):
            await system.chat(S, f"later {number}", id=f"later-{number}")
            await rolled(system, S)
        carried = json.loads(await carried_into(system))
        assert "m1" not in carried["recent"] and "c1" not in carried["recorded"]
        old = await answers_of_old(system)
        assert old == young
        await system.workflow(S).signal("message", asked(system, id="m1", content="one"))
        await system.workflow(S).signal("message", asked(system, id="behind", content="behind it"))
        await system.until(lambda: system.conn.fetchval("select true from turns where user_message_id = 'behind' and final is not null"))
        assert await system.conn.fetchval("select count(*) from turns where user_message_id = 'm1'") == 1
        await check_rows(system, S)


async def carried_into(system: System) -> str:
    """The state that the session's run began with."""
    events = (await system.workflow(S).fetch_history()).events
    (start,) = events[0].workflow_execution_started_event_attributes.input.payloads
    began: SessionStart = system.temporal.data_converter.payload_converter.from_payload(start, SessionStart)
    return began.carried
