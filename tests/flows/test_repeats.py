"""Each input twice and late, on a real server; what activities do is scripted."""

import asyncio

from temporalio.client import Client

from tests.flows.scripted import AT, Scripted, Session, answers, asks_host, ended, refused, session_with
from tests.services import PATIENCE_SECONDS
from workflows.contracts.inputs import (
    CancelInput,
    RepairInput,
    RetryInput,
    RowsSaid,
    SteerInput,
)
from workflows.contracts.steps import RunStep, StepDone
from workflows.contracts.turns import NoteSteering
from workflows.model.turn import TurnError


async def rolled(session: Session) -> None:
    """Waits until the session has continued as new."""
    run = (await session.handle.describe()).run_id
    await session.handle.signal("roll")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await session.handle.describe()).run_id == run:
            await asyncio.sleep(0.05)


async def test_l23_message_twice_is_one_turn_also_late_after_a_rollover(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        first = await session.say("hi", id="m1")
        assert (await session.say("hi", id="m1"))["turn_id"] == first["turn_id"]
        await ended(session, 1)
        await rolled(session)
        again = await session.say("hi", id="m1")
        assert (again["turn_id"], again["first"]) == (first["turn_id"], False)
        assert (await refused(session.say("ho", id="m1"))).code == "duplicate_id"
    assert len(scripted.steps) == 1


async def test_r114_continuation_twice_and_late_after_a_rollover_is_refused(temporal: Client) -> None:
    scripted = Scripted(step=asks_host("c1"))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        await rolled(session)
        await session.answer("c1")
        await ended(session, 2)
        assert (await refused(session.answer("c1"))).code == "already_recorded"
        await rolled(session)
        assert (await refused(session.answer("c1"))).facts["recorded_status"] == "completed"
    assert len(scripted.steps) == 2


async def test_l09_cancel_twice_and_late_after_two_rollovers(temporal: Client) -> None:
    under_way = asyncio.Event()

    async def slow(step: RunStep) -> StepDone:
        if step.turn.number == 1:
            return await answers(step)
        under_way.set()
        await asyncio.sleep(60)
        return await answers(step)

    async with session_with(temporal, Scripted(step=slow)) as session:
        await session.say()
        await ended(session, 1)
        await rolled(session)
        await rolled(session)
        turn = await session.say()
        await under_way.wait()
        assert (await session.send("cancel", CancelInput()))["cancel_requested"] is True
        await ended(session, 2)
        for late in (CancelInput(), CancelInput(turn_id=turn["turn_id"])):
            assert (await session.send("cancel", late))["cancel_requested"] is False


async def test_r139_repair_twice_and_late_finds_nothing(temporal: Client) -> None:
    scripted = Scripted(step=asks_host("c1"))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        for _ in range(2):
            assert await session.send("repair", RepairInput()) == {"cleared_pending": None, "repaired_calls": []}
        assert (await session.head()).batch is None
        assert (await refused(session.answer("c1"))).code == "not_pending"


async def test_r127_retry_twice_and_late_is_refused(temporal: Client) -> None:
    async def fails_first(step: RunStep) -> StepDone:
        if step.turn.number == 1 and step.turn.attempt == 1:
            return StepDone(state="failed", error=TurnError.of("provider_error", "no"), at=AT)
        return await answers(step)

    scripted = Scripted(step=fails_first)
    async with session_with(temporal, scripted) as session:
        turn = await session.say()
        await ended(session, 1)
        asked = [session.send("retry", RetryInput(turn_id=turn["turn_id"])) for _ in range(2)]
        answered = await asyncio.gather(*asked, return_exceptions=True)
        assert sorted(type(answer).__name__ for answer in answered) == ["Refusal", "dict"]
        await session.say()
        await ended(session, 2)
        assert (await refused(session.send("retry", RetryInput(turn_id=turn["turn_id"])))).code == "not_retryable"
        unknown = RetryInput(turn_id="t9", rows=RowsSaid(session_uid="x"))
        assert (await refused(session.send("retry", unknown))).code == "not_found"
    assert len(scripted.steps) == 3


async def test_r154_steer_twice_is_one_steering_and_late_it_is_promoted(temporal: Client) -> None:
    scripted = Scripted()
    async with session_with(temporal, scripted) as session:
        await session.say()
        await ended(session, 1)
        steers = [session.send("steer", SteerInput(id="g1", content="brief")) for _ in range(3)]
        receipts = await asyncio.gather(*steers)
        assert {receipt["delivery"] for receipt in receipts} == {"promoted"}
        assert len({receipt["turn_id"] for receipt in receipts}) == 1
        await ended(session, 2)
        assert (await refused(session.send("steer", SteerInput(id="g1", content="long")))).code == "duplicate_id"
    assert len(scripted.of(NoteSteering)) == 1
    assert [step.turn.kind for step in scripted.steps] == ["message", "steering"]


async def test_r155_steering_of_an_absent_session_is_refused(temporal: Client) -> None:
    async with session_with(temporal, Scripted()) as session:
        assert (await refused(session.send("steer", SteerInput(content="brief")))).code == "not_found"
