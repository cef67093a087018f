"""How long a run may get. Temporal would terminate a session at 51,200 events or 50 MB, and take no update after the 2,000th; far less is set here."""

import asyncio

import pytest
from temporalio.client import Client

from tests.flows.scripted import AT, Scripted, asks_host, ended, refused, session_with
from tests.flows.test_meeting import held
from tests.flows.test_rollover import runs
from tests.services import PATIENCE_SECONDS
from workflows.contracts import policies
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import ContinuationInput, MessageInput, RecordedRefusal, SteerInput
from workflows.contracts.steps import RunStep, StepDone
from workflows.contracts.tools import RunTool, ToolDone
from workflows.contracts.turns import EndTurn
from workflows.model.call import OpenCall


def calls(number: int, first: int = 0) -> StepDone:
    """The model calls server tools."""
    wanted = tuple(OpenCall(call_id=f"c{place}", tool_name="add", category="server") for place in range(first, first + number))
    return StepDone(state="calls", server_calls=wanted, at=AT)


async def test_r85_a_turn_ends_before_its_history_is_too_long_and_the_next_message_works(
    temporal: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policies, "ROLL_EVENTS", 60)
    monkeypatch.setattr(policies, "FULL_EVENTS", 120)

    async def without_end(step: RunStep) -> StepDone:
        return calls(2, first=2 * step.step) if step.turn.number == 1 else StepDone(state="answered", at=AT)

    scripted = Scripted(step=without_end)
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        (end,) = scripted.of(EndTurn)
        assert (end.error.type, end.error.retry_allowed) == ("usage_limit", False)
        assert end.step == len(scripted.steps) + 1, "the steps that were made are over"
        await session.say()
        await ended(session, 2)
        assert len(scripted.of(EndTurn)) == 1
        assert 120 <= len((await runs(session))[0].events) < 150


async def test_r85_the_results_of_one_response_can_not_fill_a_history(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "CALLS_AT_ONCE", 4)
    monkeypatch.setattr(policies, "FULL_BYTES", 100_000)

    async def many(step: RunStep) -> StepDone:
        return calls(100)

    scripted = Scripted(step=many, tool=lambda call: ToolDone(call_id=call.call.call_id, output="x" * 10_000, at=AT))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        (end,) = scripted.of(EndTurn)
        assert end.error.type == "usage_limit"
        assert 5 <= len(scripted.of(RunTool)) <= 20


async def test_calls_of_a_response_beyond_what_runs_at_once_run_once_each(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "CALLS_AT_ONCE", 4)

    async def many(step: RunStep) -> StepDone:
        return calls(11) if step.step == 1 else StepDone(state="answered", at=AT)

    scripted = Scripted(step=many, tool=lambda call: ToolDone(call_id=call.call.call_id, output="1", seconds=7.0, at=AT))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
    ran: list[RunTool] = scripted.of(RunTool)
    assert sorted(call.call.call_id for call in ran) == sorted(f"c{place}" for place in range(11))
    assert {call.call.call_id: call.spent_seconds for call in ran} == {f"c{place}": 7.0 * (place // 4) for place in range(11)}
    assert scripted.steps[1].spent_seconds == 21.0


@pytest.mark.parametrize(("policy", "least"), [("FULL_WAITING", 2_000), ("FULL_UPDATES", 3), ("FULL_EVENTS", 22)])
async def test_what_there_is_no_room_for_is_refused_and_what_was_accepted_runs(
    temporal: Client, monkeypatch: pytest.MonkeyPatch, policy: str, least: int
) -> None:
    monkeypatch.setattr(policies, policy, least)
    may = asyncio.Event()
    async with session_with(temporal, Scripted(step=held(may, 1))) as session:
        await session.say()
        accepted = 1
        refusal: Refusal | None = None
        while refusal is None and accepted < 10:
            try:
                await session.say("x" * 1_500, id=f"m{accepted}", when_busy="enqueue")
                accepted += 1
            except Refusal as error:
                refusal = error
        assert refusal and refusal.code == "busy" and accepted > 1
        assert (await refused(session.send("steer", SteerInput(id="g1", content="words")))).code == "busy"
        await session.say("x" * 1_500, id="m1", when_busy="enqueue")  # a repeat takes no room
        await session.handle.signal("message", MessageInput(id="late", content="y", when_busy="enqueue"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (noted := await session.handle.query("refusals", result_type=list[RecordedRefusal])):
                await asyncio.sleep(0.02)
        assert [(one.what, one.code) for one in noted] == [("message", "busy")]
        may.set()
        await ended(session, accepted)


async def test_a_results_text_reaches_the_step_as_it_is(temporal: Client) -> None:
    """The workflow never takes it apart: for megabytes of it a workflow task has no time."""
    text = '{"b":1,"a":[1.0,{"c":null}]}'
    scripted = Scripted(step=asks_host("c1"))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        await session.send("continuation", ContinuationInput(tool_call_id="c1", result_json=text, key="k", result_digest="d"))
        repeated = ContinuationInput(tool_call_id="c1", result_json="[]", key="k", result_digest="e")
        assert (await refused(session.send("continuation", repeated))).code == "duplicate_id"
        await ended(session, 2)
    opening = scripted.steps[1].opening
    assert opening and opening.result and opening.result.output == text
