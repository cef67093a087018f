"""Inputs that come in the middle of something: a result that is being written, steering on its way into the rows, a turn that begins."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from temporalio.client import Client

from tests.chains import inputs_taken
from tests.flows.scripted import AT, Script, Scripted, Session, answers, asks_host, cancelled, ended, refused, session_with
from tests.services import PATIENCE_SECONDS
from workflows.contracts.inputs import AmendInput, CancelInput, CardInput, CloseInput, ContinuationInput, RetryInput, RowsSaid, SteerInput
from workflows.contracts.steps import RunStep, StepDone
from workflows.contracts.turns import EndTurn, HandOver, NoteSteering, SteeringNoted, TurnEnded
from workflows.model.turn import TurnError

UNSEEN = RowsSaid(session_uid="x", ended_turn="another")
"""What an api says that looked before the turn, which is live now, had begun."""


def held(until: asyncio.Event, *which: int, then: Script = answers) -> Script:
    """Steps of the turns with these numbers wait; all come to what they come to `then`."""

    async def script(step: RunStep) -> StepDone:
        if step.turn.number in which:
            await until.wait()
        return await then(step)

    return script


def held_handing(writing: asyncio.Event, go_on: asyncio.Event) -> Callable[[HandOver], Awaitable[TurnEnded]]:
    """The write of a result within a batch: it has begun once `writing` is set, and ends once `go_on` is."""

    async def hand(_: HandOver) -> TurnEnded:
        writing.set()
        await go_on.wait()
        return TurnEnded(at=AT)

    return hand


def held_noting(noting: asyncio.Event, go_on: asyncio.Event, **said: Any) -> Callable[[NoteSteering], Awaitable[SteeringNoted]]:
    """The write of steering: it has begun once `noting` is set, and ends once `go_on` is, with what is `said`."""

    async def note(_: NoteSteering) -> SteeringNoted:
        noting.set()
        await go_on.wait()
        return SteeringNoted(**said)

    return note


async def accepted(session: Session, inputs: int) -> None:
    """Waits until so many updates are in the history."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await inputs_taken(session.handle) < inputs:
            await asyncio.sleep(0.02)


async def test_s39_a_retry_is_a_change_that_others_have_to_expect(temporal: Client) -> None:
    go_on = asyncio.Event()

    async def fails_once(step: RunStep) -> StepDone:
        if step.turn.attempt == 1:
            return StepDone(state="failed", error=TurnError.of("rate_limit", "slow down"), at=AT)
        await go_on.wait()
        return StepDone(state="answered", at=AT)

    async with session_with(temporal, Scripted(step=fails_once)) as session:
        turn = await session.say()
        revision = (await session.until(lambda head: head.last_turn is not None)).revision
        await session.send("retry", RetryInput(turn_id=turn["turn_id"], expected_revision=revision))
        late = await refused(session.say("late", expected_revision=revision, rows=UNSEEN))
        assert (late.code, late.facts["revision"]) == ("conversation_conflict", revision + 1)
        go_on.set()
        assert (await session.until(lambda head: head.last_turn is not None)).revision == revision + 2


async def test_s39_promoted_steering_is_a_change_that_others_have_to_expect(temporal: Client) -> None:
    go_on = asyncio.Event()
    async with session_with(temporal, Scripted(step=held(go_on, 2))) as session:
        await session.say()
        await ended(session, 1)
        revision = (await session.head()).revision
        taken = await session.send("steer", SteerInput(id="g1", content="brief", expected_revision=revision))
        assert taken["delivery"] == "promoted"
        late = await refused(session.say("late", expected_revision=revision, rows=UNSEEN))
        assert (late.code, late.facts["revision"]) == ("conversation_conflict", revision + 1)
        go_on.set()
        await ended(session, 2)


async def test_s39_who_comes_while_steering_that_insists_is_noted_is_judged_after_it(temporal: Client) -> None:
    noting, go_on = asyncio.Event(), asyncio.Event()
    async with session_with(temporal, Scripted(noting=held_noting(noting, go_on, newest_turn="?"))) as session:
        await session.say()
        await ended(session, 1)
        revision = (await session.head()).revision
        steering = asyncio.create_task(session.send("steer", SteerInput(id="g1", content="brief", expected_revision=revision)))
        await noting.wait()
        late = asyncio.create_task(refused(session.say("late", expected_revision=revision)))
        await accepted(session, 3)
        go_on.set()
        assert (await steering)["delivery"] == "promoted" and (await late).code == "conversation_conflict"


async def test_s39_a_result_that_is_being_written_is_a_change_already(temporal: Client) -> None:
    writing, go_on = asyncio.Event(), asyncio.Event()
    async with session_with(temporal, Scripted(step=asks_host("c1", "c2"), handing=held_handing(writing, go_on))) as session:
        await session.say()
        await ended(session, 1)
        revision = (await session.head()).revision
        await session.answer("c1", expected_revision=revision)
        await writing.wait()
        late = await refused(session.say("late", expected_revision=revision, rows=UNSEEN))
        assert (late.code, late.facts["revision"]) == ("conversation_conflict", revision + 1)
        go_on.set()
        await ended(session, 2)


async def test_r91_a_cancel_finds_nothing_to_do_while_a_result_within_a_batch_is_written(temporal: Client) -> None:
    writing, go_on = asyncio.Event(), asyncio.Event()
    async with session_with(temporal, Scripted(step=asks_host("c1", "c2"), handing=held_handing(writing, go_on))) as session:
        await session.say()
        await ended(session, 1)
        turn = await session.answer("c1")
        await writing.wait()
        for cancel in (CancelInput(), CancelInput(turn_id=turn["turn_id"])):
            assert await session.send("cancel", cancel) == {"cancel_requested": False, "turn_id": None}
        go_on.set()
        head = await session.until(lambda head: head.turn_number == 2)
        assert head.batch and head.batch.answered == ("c1",) and head.last_turn and head.last_turn.error is None


async def test_r92_a_result_within_a_batch_that_was_cancelled_before_it_came_ends_the_batch(temporal: Client) -> None:
    scripted = Scripted(step=asks_host("c1", "c2"))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        assert (await session.send("cancel", CancelInput(turn_id="later")))["cancel_requested"] is True
        await session.answer("c1", turn_id="later")
        head = await session.until(lambda head: head.turn_number == 2)
        assert head.batch is None and head.last_turn and head.last_turn.error and head.last_turn.error.type == "cancelled"
        assert (await refused(session.answer("c2"))).facts["recorded_status"] == "cancelled"
        assert (await refused(session.answer("c1"))).facts["recorded_status"] == "completed"
    ends = scripted.of(EndTurn)
    assert [(end.opening.result.call_id, end.error.type) for end in ends] == [("c1", "cancelled")]
    assert scripted.of(HandOver) == []


@pytest.mark.parametrize(("profile", "delivery"), [(None, "queued"), ("default", "queued"), ("other", "promoted")])
async def test_r151_a_turn_that_has_yet_to_begin_in_the_rows_takes_steering_of_its_profile_only(
    temporal: Client, profile: str | None, delivery: str
) -> None:
    go_on = asyncio.Event()
    async with session_with(temporal, Scripted(step=held(go_on, 1))) as session:
        await session.say()
        taken = await session.send("steer", SteerInput(id="g1", content="brief", profile=profile))
        go_on.set()
        assert taken["delivery"] == delivery
        await ended(session, 2 if delivery == "promoted" else 1)


async def test_r151_steering_that_a_turn_could_not_take_is_promoted_when_the_session_is_idle(temporal: Client) -> None:
    async def passes_over(step: RunStep) -> StepDone:
        return StepDone(state="answered", passed_over="other" if step.turn.kind == "message" else "", at=AT)

    scripted = Scripted(step=passes_over)
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 2)
    assert [(step.turn.kind, step.profile) for step in scripted.steps] == [("message", "default"), ("steering", "other")]


async def test_r154_steering_that_a_retry_took_while_it_was_noted_gets_no_turn(temporal: Client) -> None:
    noting, go_on = asyncio.Event(), asyncio.Event()

    async def fails_once(step: RunStep) -> StepDone:
        if step.turn.attempt == 1:
            return StepDone(state="failed", error=TurnError.of("rate_limit", "slow down"), at=AT)
        return StepDone(state="answered", steering=("g1",), at=AT)

    scripted = Scripted(step=fails_once)
    async with session_with(temporal, scripted) as session:
        turn = await session.say()

        async def note(_: NoteSteering) -> SteeringNoted:
            if noting.is_set():
                return SteeringNoted(newest_turn=turn["turn_id"], newest_attempt=2, taken=True)
            noting.set()
            await go_on.wait()
            return SteeringNoted(newest_turn=turn["turn_id"], newest_attempt=1)

        scripted.noting = note
        await session.until(lambda head: head.last_turn is not None)
        steering = asyncio.create_task(session.send("steer", SteerInput(id="g1", content="brief")))
        await noting.wait()
        await session.send("retry", RetryInput(turn_id=turn["turn_id"]))
        await session.until(lambda head: bool(head.last_turn and head.last_turn.turn.attempt == 2))
        go_on.set()
        assert (await steering)["delivery"] == "queued"
        assert (await session.head()).turn_number == 1
    assert len(scripted.of(NoteSteering)) == 2


async def test_s20_who_waits_while_a_session_is_deleted_is_told_so(temporal: Client) -> None:
    noting, go_on = asyncio.Event(), asyncio.Event()
    scripted = Scripted(noting=held_noting(noting, go_on))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        revision = (await session.head()).revision
        steering = asyncio.create_task(refused(session.send("steer", SteerInput(id="g1", content="brief", expected_revision=revision))))
        await noting.wait()
        late = asyncio.create_task(refused(session.say("late", expected_revision=revision)))
        await accepted(session, 3)
        await session.send("close", CloseInput())
        go_on.set()
        assert ((await steering).code, (await late).code) == ("closed", "closed")
        await session.handle.result()
    assert len(scripted.steps) == 1


async def test_l21_a_stop_means_the_turn_that_comes_while_another_one_is_ending(temporal: Client) -> None:
    under_way, go_on = asyncio.Event(), asyncio.Event()

    async def lingers(step: RunStep) -> StepDone:
        if step.turn.number > 1:
            return StepDone(state="answered", at=AT)
        try:
            under_way.set()
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await go_on.wait()
        return cancelled()

    scripted = Scripted(step=lingers)
    async with session_with(temporal, scripted) as session:
        first = await session.say("one")
        await under_way.wait()
        second = await session.say("two")
        assert await session.send("cancel", CancelInput()) == {"cancel_requested": True, "turn_id": second["turn_id"]}
        assert await session.send("cancel", CancelInput()) == {"cancel_requested": False, "turn_id": first["turn_id"]}
        go_on.set()
        head = await session.until(lambda head: head.turn_number == 2)
        assert head.last_turn and head.last_turn.error and head.last_turn.error.type == "cancelled"
    assert [step.cancelled for step in scripted.steps] == [False, True]


async def test_s40_who_knows_that_a_turn_is_over_is_not_told_that_it_runs_however_late_its_workflow_learns_of_it(temporal: Client) -> None:
    go_on = asyncio.Event()
    async with session_with(temporal, Scripted(step=held(go_on, 1))) as session:
        turn = await session.say()
        rows = RowsSaid(session_uid="x", turn=True, ended_turn=turn["turn_id"])
        card = CardInput(segments=[{"kind": "component", "type": "note"}], rows=rows)
        move = AmendInput(fields=("active_leaf_id",), active_leaf_id="m", rows=rows)
        late = [asyncio.create_task(session.send(name, asked)) for name, asked in (("card", card), ("amend", move))]
        late.append(asyncio.create_task(session.say("late", when_busy="reject", rows=rows)))
        result = asyncio.create_task(refused(session.answer("c1", rows=rows)))
        again = asyncio.create_task(refused(session.send("retry", RetryInput(turn_id=turn["turn_id"], rows=rows))))
        done, _ = await asyncio.wait({*late, result, again}, timeout=2.5, return_when=asyncio.FIRST_COMPLETED)
        go_on.set()
        assert not done, "longer than a live turn is waited for"
        assert {refusal.code for refusal in (await result, await again)} <= {"not_pending", "not_retryable", "busy"}
        taken = await asyncio.gather(*late, return_exceptions=True)
        assert not isinstance(taken[0], Exception) or not isinstance(taken[2], Exception), "one of them was the first"


async def test_s40_signals_with_results_that_wait_for_one_turn_are_judged_one_after_the_other(temporal: Client) -> None:
    go_on = asyncio.Event()
    async with session_with(temporal, Scripted(step=held(go_on, 1, then=asks_host("c1")))) as session:
        await session.say()
        for call_id in ("c1", "c2", "c1"):
            await session.handle.signal("host_result", ContinuationInput(tool_call_id=call_id))
        go_on.set()
        await ended(session, 2)
        refusals = await session.handle.query("refusals")
        assert sorted(refusal["code"] for refusal in refusals) == ["already_recorded", "not_pending"]
