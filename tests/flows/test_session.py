"""What the session's workflow decides, on a real server; what activities do is scripted."""

import asyncio

import pytest
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from tests.flows.scripted import Scripted, answers, asks_host, ended, refused, session_with
from tests.services import PATIENCE_SECONDS
from workflows.contracts.inputs import (
    CancelInput,
    ContinuationInput,
    MessageInput,
    RecordedRefusal,
    RepairInput,
    RowsSaid,
    SteerInput,
)
from workflows.contracts.steps import RunStep, StepDone
from workflows.contracts.turns import EndTurn, RecordRefusal


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
        await session.handle.signal("no_such_signal", 1)
        for update in ("message", "continuation", "steer", "cancel", "repair", "retry", "card", "amend", "close"):
            with pytest.raises(WorkflowUpdateFailedError):
                await session.handle.execute_update(update, {"content": 7, "fields": 7, "tenant": 7})
            with pytest.raises(WorkflowUpdateFailedError):
                await session.handle.execute_update(update)
        await session.say()
        await ended(session, 2)


async def test_l12_signals_of_another_shape_are_recorded_as_refusals(temporal: Client) -> None:
    odd: list[list[object]] = [[], [{"content": {"not": "text"}, "tenant": 1}], ["text"], [None], [{"content": "a"}, {"content": "b"}]]
    empty = SteerInput(content="")
    names = ("message", "continuation", "host_result", "steer", "cancel")
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        for name in names:
            for payloads in odd:
                await session.handle.signal(name, args=payloads)
        await session.handle.signal("steer", empty)
        await session.handle.signal("roll", {"with": "a payload"})
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(scripted.of(RecordRefusal)) <= len(names) * len(odd):
                await asyncio.sleep(0.02)
        await session.say()
        await ended(session, 2)
    refusals = [(asked.refusal.what, asked.refusal.code) for asked in scripted.of(RecordRefusal)]
    assert all(refusals.count((name, "bad_request")) == len(odd) + (name == "steer") for name in names)


async def test_l12_a_refused_signal_is_recorded_and_announced(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        await session.handle.signal("host_result", ContinuationInput(tool_call_id="c1"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not scripted.of(RecordRefusal):
                await asyncio.sleep(0.02)
        refusals = await session.handle.query("refusals", result_type=list[RecordedRefusal])
        assert [(refusal.what, refusal.code) for refusal in refusals] == [("host_result", "not_pending")]


async def test_l07_the_same_message_before_and_after_a_rollover_is_one_turn(temporal: Client) -> None:
    scripted = Scripted(step=asks_host("c1"))
    async with session_with(temporal, scripted) as session:
        first = await session.say("hi", id="m1")
        await ended(session, 1)
        before = await session.handle.describe()
        await session.handle.signal("roll")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (after := await session.handle.describe()).run_id == before.run_id:
                await asyncio.sleep(0.05)
        assert await after.memo() == await before.memo() == {"session_uid": first["session_uid"]}
        again = await session.say("hi", id="m1")
        assert again["turn_id"] == first["turn_id"]
        await session.answer("c1")
        await ended(session, 2)
    assert len(scripted.steps) == 2
    assert len(scripted.of(type(scripted.asked[0]))) == 1  # the head was loaded once
