"""How results of hosts are accepted, on a real server; what activities do is scripted."""

import asyncio
from datetime import timedelta

import pytest
from temporalio.client import Client

from tests.flows.scripted import AT, Scripted, answers, asks_host, ended, refused, session_with
from tests.flows.test_meeting import held
from workflows.contracts import policies
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import (
    RetryInput,
)
from workflows.contracts.steps import RunStep, StepDone
from workflows.contracts.tools import RunTool, ToolDone
from workflows.contracts.turns import HandOver
from workflows.model.call import OpenCall
from workflows.model.turn import TurnError


async def test_r73_a_continuation_waits_for_the_live_turn_and_does_not_cancel_it(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies, "LATE_INPUT_WAIT", timedelta(hours=1))
    go_on = asyncio.Event()

    async def announced_late(step: RunStep) -> StepDone:
        if step.turn.kind == "message":
            await go_on.wait()
        return await asks_host("c1")(step)

    scripted = Scripted(step=announced_late)
    async with session_with(temporal, scripted) as session:
        await session.say()
        early = asyncio.create_task(session.answer("c1"))
        await asyncio.sleep(0.5)
        assert not early.done()
        go_on.set()
        assert (await early)["message_id"] == scripted.steps[0].turn.message_id
        await ended(session, 2)


async def test_r73_a_long_wait_is_sent_back_to_the_caller(temporal: Client) -> None:
    go_on = asyncio.Event()
    async with session_with(temporal, Scripted(step=held(go_on, 1, then=asks_host("c1")))) as session:
        receipt = await session.say()
        refusal = await refused(session.answer("c1"))
        assert (refusal.code, refusal.facts["later"]) == ("busy", receipt["turn_id"])
        go_on.set()
        await ended(session, 1)
        await session.answer("c1")
        await ended(session, 2)


async def test_r114_a_result_is_accepted_exactly_once(temporal: Client) -> None:
    scripted = Scripted(step=asks_host("c1"))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        results = await asyncio.gather(*(session.answer("c1") for _ in range(20)), return_exceptions=True)
        refusals = [result for result in results if isinstance(result, Refusal)]
        assert len(results) - len(refusals) == 1
        assert {(refusal.code, refusal.facts["recorded_status"]) for refusal in refusals} == {("already_recorded", "completed")}
        await ended(session, 2)
    assert len(scripted.steps) == 2


async def test_r120_nothing_pending_and_never_recorded(temporal: Client) -> None:
    async with session_with(temporal, Scripted()) as session:
        await session.say()
        await ended(session, 1)
        assert (await refused(session.answer("c9"))).code == "not_pending"


async def test_r122_a_message_supersedes_the_batch(temporal: Client) -> None:
    scripted = Scripted(step=asks_host("c1", "c2"))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        scripted.step = answers
        await session.say()
        await ended(session, 2)
        for call_id in ("c1", "c2"):
            refusal = await refused(session.answer(call_id))
            assert (refusal.code, refusal.facts["recorded_status"]) == ("already_recorded", "superseded")


async def test_r126_a_batch_is_handed_over_in_order_and_only_the_last_result_runs_the_model(temporal: Client) -> None:
    scripted = Scripted(step=asks_host("c1", "c2", "c3", "c4"))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        refusal = await refused(session.answer("c3"))
        assert (refusal.code, refusal.facts["pending_call_id"]) == ("call_mismatch", "c1")
        for number, call_id in enumerate(("c1", "c2", "c3", "c4"), start=2):
            await session.answer(call_id)
            await ended(session, number)
    assert [asked.result.call_id for asked in scripted.of(HandOver)] == ["c1", "c2", "c3"]
    assert len(scripted.steps) == 2


async def test_r127_a_failed_continuation_keeps_its_result_and_can_be_retried(temporal: Client) -> None:
    async def fails_once(step: RunStep) -> StepDone:
        if step.turn.kind == "continuation" and step.turn.attempt == 1:
            return StepDone(state="failed", error=TurnError.of("rate_limit", "slow down"), at=AT)
        return await asks_host("c1")(step)

    scripted = Scripted(step=fails_once)
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        turn = await session.answer("c1")
        await ended(session, 2)
        assert (await refused(session.answer("c1"))).code == "already_recorded"
        again = await session.send("retry", RetryInput(turn_id=turn["turn_id"]))
        assert again["attempt"] == 2
        head = await session.until(lambda head: bool(head.last_turn and head.last_turn.turn.attempt == 2))
        assert head.turn_number == 2
        assert head.last_turn and head.last_turn.error is None
        assert (await refused(session.send("retry", RetryInput(turn_id=turn["turn_id"])))).code == "not_retryable"


async def test_l17_three_host_round_trips_run_each_step_once(temporal: Client) -> None:
    calls = iter(("c1", "c2", "c3"))

    async def one_more(step: RunStep) -> StepDone:
        if (call_id := next(calls, None)) is None:
            return await answers(step)
        return StepDone(state="paused", host_calls=(OpenCall(call_id=call_id, tool_name="open_page", category="host"),), at=AT)

    scripted = Scripted(step=one_more)
    async with session_with(temporal, scripted) as session:
        await session.say()
        for number, call_id in enumerate(("c1", "c2", "c3"), start=1):
            await ended(session, number)
            await session.answer(call_id)
        await ended(session, 4)
    assert len(scripted.steps) == 4
    assert len({step.turn.message_id for step in scripted.steps}) == 1


async def test_l15_a_retry_goes_on_behind_tools_that_ran_out_of_time(temporal: Client) -> None:
    async def one_call(step: RunStep) -> StepDone:
        if step.step > 1:
            return await answers(step)
        return StepDone(state="calls", server_calls=(OpenCall(call_id="c1", tool_name="slow", category="server"),), at=AT)

    def late(call: RunTool) -> ToolDone:
        return ToolDone(call_id=call.call.call_id, outcome="interrupted", status="unknown", out_of_time=True, at=AT)

    scripted = Scripted(step=one_call, tool=late)
    async with session_with(temporal, scripted) as session:
        turn = await session.say()
        head = await session.until(lambda head: head.turn_number == 1)
        assert head.last_turn and head.last_turn.error and head.last_turn.error.type == "timeout"
        await session.send("retry", RetryInput(turn_id=turn["turn_id"]))
        await session.until(lambda head: bool(head.last_turn and head.last_turn.turn.attempt == 2))
    assert [(step.turn.attempt, step.step) for step in scripted.steps] == [(1, 1), (2, 2)]
    assert len(scripted.of(RunTool)) == 1


async def test_s39_a_message_that_the_rows_refuse_leaves_the_revision(temporal: Client) -> None:
    async def refuses_second(step: RunStep) -> StepDone:
        if step.opening and step.opening.message and step.opening.message.content == "taken":
            return StepDone(state="refused", error=TurnError.of("session_error", "taken"), at=AT)
        return await answers(step)

    scripted = Scripted(step=refuses_second)
    async with session_with(temporal, scripted) as session:
        await session.say()
        before = await session.until(lambda head: head.turn_number == 1)
        await session.say("taken")
        await session.until(lambda head: len(scripted.steps) == 2 and head.revision == before.revision)
        await session.say("next", expected_revision=before.revision)
        after = await session.until(lambda head: head.turn_number == 2)
        assert after.revision == before.revision + 2
