"""What the session's workflow decides, on a real server; what activities do is scripted."""

import asyncio

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from tests.flows.scripted import AT, Scripted, Session, answers, asks_host, session_with
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import (
    CancelInput,
    ContinuationInput,
    MessageInput,
    RecordedRefusal,
    RepairInput,
    RetryInput,
    RowsSaid,
)
from workflows.contracts.steps import RunStep, StepDone
from workflows.contracts.turns import EndTurn, HandOver, RecordRefusal
from workflows.model.call import OpenCall
from workflows.model.turn import TurnError


async def refused(work: object) -> Refusal:
    with pytest.raises(Refusal) as caught:
        await work  # type: ignore[misc]
    return caught.value


async def ended(session: Session, turns: int) -> None:
    await session.until(lambda head: head.turn_number == turns)


async def test_r58_the_first_message_is_turn_one_and_has_no_parent(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        receipt = await session.say("hi", id="m1")
        await ended(session, 1)
    first = scripted.steps[0]
    assert receipt["message_id"] == first.turn.message_id
    assert first.opening and first.opening.message and first.opening.message.parent_id is None
    assert first.turn.number == 1
    assert first.opening.birth and first.opening.birth.owner == "local"


async def test_r60_a_message_without_parent_continues_the_active_leaf(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        first = await session.say()
        await ended(session, 1)
        await session.say()
        await ended(session, 2)
    opening = scripted.steps[1].opening
    assert opening and opening.message and opening.message.parent_id == first["message_id"]
    assert opening.birth is None


async def test_r62_an_unknown_parent_is_refused_and_nothing_recorded(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        uid = (await session.head()).session_uid
        refusal = await refused(session.say(parent_id="nowhere", rows=RowsSaid(session_uid=uid)))
        assert refusal.code == "unknown_parent"
        await session.say(parent_id="old", rows=RowsSaid(session_uid=uid, parent=True))
        await ended(session, 2)
    assert len(scripted.steps) == 2


async def test_r63_l23_the_same_message_twice_is_one_turn_and_another_body_is_refused(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        once = [session.say("hi", id="m1") for _ in range(5)]
        receipts = await asyncio.gather(*once)
        await ended(session, 1)
        late = await session.say("hi", id="m1")
        assert {receipt["turn_id"] for receipt in (*receipts, late)} == {receipts[0]["turn_id"]}
        assert (await refused(session.say("other", id="m1"))).code == "duplicate_id"
    assert len(scripted.steps) == 1


async def test_r72_a_message_cancels_the_live_turn_and_runs_after_it(temporal: Client) -> None:
    under_way = asyncio.Event()

    async def slow_first(step: RunStep) -> StepDone:
        if step.turn.number == 1:
            under_way.set()
            await asyncio.sleep(60)
        return await answers(step)

    scripted = Scripted(step=slow_first)
    async with session_with(temporal, scripted) as session:
        first = await session.say()
        await under_way.wait()
        await session.say("another")
        head = await session.until(lambda head: head.turn_number == 2)
    second = scripted.steps[1]
    assert second.opening and second.opening.message and second.opening.message.parent_id == first["message_id"]
    assert head.last_turn and head.last_turn.error is None


async def test_r73_a_continuation_waits_for_the_live_turn_and_does_not_cancel_it(temporal: Client) -> None:
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

    async def slow(step: RunStep) -> StepDone:
        await go_on.wait()
        return await asks_host("c1")(step)

    async with session_with(temporal, Scripted(step=slow)) as session:
        receipt = await session.say()
        refusal = await refused(session.answer("c1"))
        assert (refusal.code, refusal.facts["later"]) == ("busy", receipt["turn_id"])
        go_on.set()
        await ended(session, 1)
        await session.answer("c1")
        await ended(session, 2)


async def test_r92_a_turn_that_has_not_begun_is_cancelled_without_a_model_request(temporal: Client) -> None:
    under_way, go_on = asyncio.Event(), asyncio.Event()

    async def slow(step: RunStep) -> StepDone:
        under_way.set()
        await go_on.wait()
        return await answers(step)

    scripted = Scripted(step=slow)
    async with session_with(temporal, scripted) as session:
        await session.say()
        await under_way.wait()
        waiting = await session.say("patient", when_busy="enqueue", turn_id="t2")
        receipt = await session.send("cancel", CancelInput(turn_id="t2"))
        assert receipt == {"cancel_requested": True, "turn_id": "t2"}
        go_on.set()
        await ended(session, 2)
    assert [step.cancelled for step in scripted.steps] == [False, True]
    assert waiting["turn_id"] == "t2"


async def test_r91_cancel_ends_the_live_turn_once(temporal: Client) -> None:
    under_way = asyncio.Event()

    async def slow(step: RunStep) -> StepDone:
        under_way.set()
        await asyncio.sleep(60)
        return await answers(step)

    async with session_with(temporal, Scripted(step=slow)) as session:
        receipt = await session.say()
        await under_way.wait()
        assert await session.send("cancel", CancelInput()) == {"cancel_requested": True, "turn_id": receipt["turn_id"]}
        head = await session.until(lambda head: head.turn_number == 1)
        assert head.last_turn and head.last_turn.error and head.last_turn.error.type == "cancelled"
        assert (await session.send("cancel", CancelInput()))["cancel_requested"] is False


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


async def test_r140_nothing_is_born_by_a_refused_first_input(temporal: Client) -> None:
    async with session_with(temporal, Scripted()) as session:
        for update, asked in (("repair", RepairInput()), ("continuation", ContinuationInput(tool_call_id="c1")), ("cancel", CancelInput())):
            assert (await refused(session.send(update, asked))).code == "not_found"
        await session.handle.result()
        assert (await session.handle.describe()).status == WorkflowExecutionStatus.COMPLETED
        await session.say()
        await ended(session, 1)


async def test_r38_another_principal_is_refused_as_if_there_were_no_session(temporal: Client) -> None:
    async with session_with(temporal, Scripted(step=asks_host("c1"))) as session:
        await session.say(principal="alice")
        await ended(session, 1)
        for update, asked in (
            ("message", MessageInput(content="x", principal="bob")),
            ("continuation", ContinuationInput(tool_call_id="c1", principal="bob")),
            ("cancel", CancelInput(principal="bob")),
            ("repair", RepairInput(principal="bob")),
        ):
            assert (await refused(session.send(update, asked))).code == "not_found"


async def test_l12_an_activity_that_fails_for_good_ends_the_turn_and_the_next_message_works(temporal: Client) -> None:
    async def broken_once(step: RunStep) -> StepDone:
        if step.turn.number == 1:
            raise ApplicationError("boom", non_retryable=True)
        return await answers(step)

    scripted = Scripted(step=broken_once)
    async with session_with(temporal, scripted) as session:
        await session.say()
        head = await session.until(lambda head: head.turn_number == 1)
        assert head.last_turn and head.last_turn.error and head.last_turn.error.type == "internal"
        await session.say()
        await ended(session, 2)
    assert len(scripted.of(EndTurn)) == 1


async def test_l12_payloads_that_do_not_decode_harm_nothing(temporal: Client) -> None:
    async with session_with(temporal, Scripted()) as session:
        await session.say()
        await ended(session, 1)
        await session.handle.signal("message", {"content": {"not": "text"}})
        await session.handle.signal("no_such_signal", 1)
        with pytest.raises(WorkflowUpdateFailedError):
            await session.handle.execute_update("message", {"content": 7})
        await session.say()
        await ended(session, 2)


async def test_l12_a_refused_signal_is_recorded_and_announced(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        await session.handle.signal("host_result", ContinuationInput(tool_call_id="c1"))
        async with asyncio.timeout(10):
            while not scripted.of(RecordRefusal):
                await asyncio.sleep(0.02)
        refusals = await session.handle.query("refusals", result_type=list[RecordedRefusal])
        assert [(refusal.what, refusal.code) for refusal in refusals] == [("host_result", "not_pending")]


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


async def test_l07_the_same_message_before_and_after_a_rollover_is_one_turn(temporal: Client) -> None:
    scripted = Scripted(step=asks_host("c1"))
    async with session_with(temporal, scripted) as session:
        first = await session.say("hi", id="m1")
        await ended(session, 1)
        run = (await session.handle.describe()).run_id
        await session.handle.signal("roll")
        async with asyncio.timeout(20):
            while (await session.handle.describe()).run_id == run:
                await asyncio.sleep(0.05)
        again = await session.say("hi", id="m1")
        assert again["turn_id"] == first["turn_id"]
        await session.answer("c1")
        await ended(session, 2)
    assert len(scripted.steps) == 2
    assert len(scripted.of(type(scripted.asked[0]))) == 1  # the head was loaded once
