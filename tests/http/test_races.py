"""Inputs that meet: through two apis at once, and in the moment in which a turn ends. Answers and rows must tell one story."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx
import pytest

from activities.db.reads import Reads
from api.sending import Workflows
from api.turns import said
from tests.model.invariants import check_rows
from tests.models import Behaviour, calls, hangs, raises, says, script
from tests.system import System, running_system
from workflows.contracts.inputs import CloseInput, Input, SteerInput

ROUNDS = 40 if os.environ.get("TEST_LONG") else 3
ONE = calls(("c1", "open_page", {"url": "u"}))
THREE = calls(*((f"c{number}", "open_page", {"url": "u"}) for number in range(1, 4)))
Race = Callable[[System, str, int], Awaitable[None]]


def problem(answer: httpx.Response) -> tuple[int, str | None]:
    return answer.status_code, answer.json().get("code")


async def resume(system: System, session: str, call_id: str, number: int = 0, result: Any = "ok") -> httpx.Response:
    return await system.post("/chat", {"session_id": session, "tool_call_id": call_id, "tool_result": result}, api=number % 2)


async def say(system: System, session: str, number: int = 0, **fields: Any) -> httpx.Response:
    return await system.post("/chat", {"session_id": session, "content": f"hello {number}", **fields}, api=number % 2)


async def update(system: System, session: str, name: str, asked: Input) -> Any:
    """What has no route, sent as the api sends it."""
    door = await Reads(system.kit.db).door(system.tenant, session)
    asked = asked.model_copy(update={"tenant": system.tenant, "roles": ("admin",), "rows": said(door)})
    return await getattr(Workflows(system.temporal, system.settings.task_queue), name)(session, asked)


async def statuses(system: System, session: str) -> dict[str, str]:
    rows = await system.conn.fetch(
        "select call_id, coalesce(status, state) as status from calls join sessions s using (session_uid) where s.session_id = $1", session
    )
    return {row["call_id"]: row["status"] for row in rows}


async def continuation_by_continuation(system: System, session: str, number: int) -> None:
    answers = await asyncio.gather(*(resume(system, session, "c1", copy, copy) for copy in range(50)))
    taken = [copy for copy, answer in enumerate(answers) if answer.status_code == 200]
    assert len(taken) == 1, [problem(answer) for answer in answers]
    refused = {problem(answer) for answer in answers if answer.status_code != 200}
    assert refused == {(409, "already_recorded")}
    output = await system.conn.fetchval("select output from calls join sessions s using (session_uid) where s.session_id = $1", session)
    assert output == str(taken[0])


async def continuation_by_message(system: System, session: str, number: int) -> None:
    first, second = await asyncio.gather(resume(system, session, "c1", number), say(system, session, number + 1))
    assert second.status_code == 200
    status = (await statuses(system, session))["c1"]
    if first.status_code == 200:
        assert status == "recorded"
    else:
        assert (*problem(first), first.json()["recorded_status"], status) == (409, "already_recorded", "superseded", "superseded")


async def half_a_batch_by_message(system: System, session: str, number: int) -> None:
    assert (await resume(system, session, "c1")).status_code == 200
    await continuation_of("c2", system, session, number)


async def continuation_of(call_id: str, system: System, session: str, number: int) -> None:
    first, second = await asyncio.gather(resume(system, session, call_id, number), say(system, session, number + 1))
    assert second.status_code == 200
    found = await statuses(system, session)
    assert found == {"c1": "recorded", "c2": "recorded" if first.status_code == 200 else "superseded", "c3": "superseded"}
    assert first.status_code == 200 or problem(first) == (409, "already_recorded")


async def cancel_by_end(system: System, session: str, number: int) -> None:
    turn = (await system.submit(session, "go"))["turn_id"]
    await asyncio.sleep(0.004 * (number % 12))
    cancelled = (await system.post(f"/sessions/{session}/cancel", {"turn_id": turn}, api=number % 2)).json()
    await system.until(lambda: ended(system, session, turn))
    error = (await ended(system, session, turn))["error"]
    if error is not None:
        assert cancelled["cancel_requested"] and error["type"] == "cancelled"


async def ended(system: System, session: str, turn: str) -> Any:
    final = await system.conn.fetchval(
        "select final from turns join sessions s using (session_uid) where s.session_id = $1 and turn_id = $2", session, turn
    )
    return json.loads(final) if final else None


async def cancel_by_continuation(system: System, session: str, number: int) -> None:
    resumed, cancelled = await asyncio.gather(
        resume(system, session, "c1", number), system.post(f"/sessions/{session}/cancel", api=1 - number % 2)
    )
    assert resumed.status_code == 200
    if resumed.json()["error"]:
        assert cancelled.json() == {"cancel_requested": True, "turn_id": resumed.json()["turn_id"]}
    assert (await statuses(system, session))["c1"] == "recorded"


async def result_behind_cancels(system: System, session: str, number: int) -> None:
    """Two messages that interrupt, a cancel, and a call that is answered as soon as it is shown."""

    def told() -> AsyncIterator[Any]:
        last = str(system.script.requests[-1][-1].parts[-1])
        call = calls((f"{session}-c2", "open_page", {"url": "u"}))
        return (hangs("well") if "go on" in last else call if "hello" in last else says("done"))()

    system.script.behaviours = [told]
    cancels = (system.post(f"/sessions/{session}/cancel", api=copy % 2) for copy in range(2))
    await asyncio.gather(*(system.submit(session, "go on") for _ in range(2)), *cancels)
    asked = await say(system, session, number)
    call_id = asked.json()["pending_tool_call"]["call_id"]
    resumed, cancelled = await asyncio.gather(
        resume(system, session, call_id, number), system.post(f"/sessions/{session}/cancel", api=1 - number % 2)
    )
    assert resumed.status_code == 200, resumed.text
    assert cancelled.json()["cancel_requested"] or resumed.json()["error"] is None
    assert (await statuses(system, session))[call_id] == "recorded"


async def repair_by_continuation(system: System, session: str, number: int) -> None:
    resumed, repaired = await asyncio.gather(
        resume(system, session, "c1", number), system.post(f"/sessions/{session}/repair", api=1 - number % 2)
    )
    assert repaired.status_code == 200
    if resumed.status_code == 200:
        assert repaired.json()["repaired_calls"] == [] and (await statuses(system, session))["c1"] == "recorded"
    else:
        assert (*problem(resumed), resumed.json()["recorded_status"]) == (409, "already_recorded", "unknown")
        assert repaired.json()["repaired_calls"] == ["c1"]


async def message_by_message(system: System, session: str, number: int) -> None:
    answers = [answer.json() for answer in await asyncio.gather(*(say(system, session, copy) for copy in range(6)))]
    assert sorted(answer["turn_number"] for answer in answers) == list(range(2, 8))
    assert all(answer["error"] is None or answer["error"]["type"] == "cancelled" for answer in answers)
    last = max(answers, key=lambda answer: answer["turn_number"])
    assert last["error"] is None
    assert [row["role"] for row in await system.messages(session)] == ["user", "assistant"] * 7


async def expected_by_expected(system: System, session: str, number: int) -> None:
    """S39, with what is no message: each raises the revision, so only one writer may have expected this one."""
    revision = (await system.get(f"/sessions/{session}"))["revision"]
    answers = await asyncio.gather(*(say(system, session, copy, expected_revision=revision) for copy in range(2)))
    assert sorted(problem(answer)[0] for answer in answers) == [200, 409]


async def retry_by_expected(system: System, session: str, number: int) -> None:
    """S39: another attempt is a change as well."""
    view = await system.get(f"/sessions/{session}")
    turn = await system.conn.fetchval("select turn_id from turns join sessions s using (session_uid) where s.session_id = $1", session)
    again = system.post(f"/sessions/{session}/turns/{turn}/retry", {"expected_revision": view["revision"]}, api=number % 2)
    answers = await asyncio.gather(again, say(system, session, number + 1, expected_revision=view["revision"]))
    assert sorted(answer.status_code for answer in answers) == [200, 409], [problem(answer) for answer in answers]


async def steering_by_expected(system: System, session: str, number: int) -> None:
    """S39: so is steering that gets a turn of its own."""
    revision = (await system.get(f"/sessions/{session}"))["revision"]
    words = {"session_id": session, "content": "brief", "message_type": "steering", "expected_revision": revision}
    answers = await asyncio.gather(
        system.post("/chat", words, api=number % 2), say(system, session, number + 1, expected_revision=revision)
    )
    assert sorted(answer.status_code for answer in answers) in ([200, 409], [202, 409]), [problem(answer) for answer in answers]

    async def second() -> bool:
        return bool((await system.get(f"/sessions/{session}"))["turn_number"] == 2)

    await system.until(second)


async def result_by_expected(system: System, session: str, number: int) -> None:
    """S39: and a result in the middle of a batch."""
    revision = (await system.get(f"/sessions/{session}"))["revision"]
    body = {"session_id": session, "tool_call_id": "c1", "tool_result": "ok", "expected_revision": revision}
    answers = await asyncio.gather(system.post("/chat", body, api=number % 2), say(system, session, number + 1, expected_revision=revision))
    assert sorted(answer.status_code for answer in answers) == [200, 409], [problem(answer) for answer in answers]


async def steering_by_end(system: System, session: str, number: int) -> None:
    await system.submit(session, "go")
    await asyncio.sleep(0.004 * (number % 12))
    receipt = await update(system, session, "steer", SteerInput(id="g1", content="brief"))

    async def delivered() -> bool:
        return bool(await system.conn.fetchval(
            "select status = 'delivered' from steering join sessions s using (session_uid) where s.session_id = $1", session))  # fmt: skip

    await system.until(delivered)
    await system.until(lambda: idle(system, session))
    turns = (await system.get(f"/sessions/{session}"))["turn_number"]
    assert turns == (3 if receipt.delivery == "promoted" else 2)


async def idle(system: System, session: str) -> bool:
    return bool((await system.get(f"/sessions/{session}"))["live_turn"] is None)


async def close_by_turn(system: System, session: str, number: int) -> None:
    waiting = asyncio.create_task(say(system, session, number))
    await asyncio.sleep(0.004 * (number % 12))
    await update(system, session, "close", CloseInput())
    answer = await waiting
    assert answer.status_code in (200, 404), answer.text
    left = await system.http.get(f"/api/sessions/{session}")
    if left.status_code == 200:
        assert (answer.status_code, left.json()["turn_number"]) == (200, 1), "only a message that came after the end begins anew"
    for table in ("messages", "events", "turns"):
        assert not await system.conn.fetchval(f"select count(*) from {table} where session_uid not in (select session_uid from sessions)")


async def deadline_by_continuation(system: System, session: str, number: int) -> None:
    await asyncio.sleep(0.25 + 0.01 * (number % 10))
    resumed = await resume(system, session, "c1", number)
    await system.until(lambda: idle(system, session))
    status = (await statuses(system, session))["c1"]
    if resumed.status_code == 200:
        assert status == "recorded"
    else:
        assert (*problem(resumed), resumed.json()["recorded_status"], status) == (409, "already_recorded", "unknown", "unknown")


RACES: dict[str, tuple[Race, Behaviour]] = {
    "s49_continuation_by_continuation": (continuation_by_continuation, ONE),
    "r122_continuation_by_message": (continuation_by_message, ONE),
    "r122_half_a_batch_by_message": (half_a_batch_by_message, THREE),
    "r91_cancel_by_end": (cancel_by_end, says("hi")),
    "r104_cancel_by_continuation": (cancel_by_continuation, ONE),
    "s40_result_behind_cancels": (result_behind_cancels, says("hi")),
    "r137_repair_by_continuation": (repair_by_continuation, ONE),
    "s40_message_by_message": (message_by_message, says("hi")),
    "s39_expected_by_expected": (expected_by_expected, says("hi")),
    "s39_retry_by_expected": (retry_by_expected, raises(ValueError("a bug"))),
    "s39_steering_by_expected": (steering_by_expected, says("hi")),
    "s39_result_by_expected": (result_by_expected, THREE),
    "r143_steering_by_end": (steering_by_end, says("hi")),
    "s20_close_by_turn": (close_by_turn, says("hi")),
    "s58_deadline_by_continuation": (deadline_by_continuation, calls(("c1", "quick", {}))),
}
QUICK = {"name": "quick", "description": "Quick.", "parameters": {"type": "object"}, "deadline_seconds": 0.3}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", RACES)
async def test_s40_inputs_that_meet_tell_one_story(database_url: str, temporal_address: str, name: str) -> None:
    race, first = RACES[name]
    scripted = script(first, says("done", " and done", pause=0.01))
    context = {"version": 1, "actions": [QUICK]}
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        for number in range(ROUNDS):
            session = f"{name}-{number}"
            scripted.then(first, says("done", " and done", pause=0.01))
            await system.chat(session, host_context=context)
            await race(system, session, number)
            await system.until(lambda session=session: over(system, session))  # type: ignore[misc]
            await check_rows(system, session)


async def over(system: System, session: str) -> bool:
    found = await system.http.get(f"/api/sessions/{session}")
    return found.status_code == 404 or found.json()["live_turn"] is None
