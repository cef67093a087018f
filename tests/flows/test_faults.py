"""L12: nothing unexpected hangs a session. It ends what it happened in, with a reason, and the next message works."""

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest
from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from tests.flows.faulty import IN_HANDLER, IN_JOB, FaultySession
from tests.flows.scripted import Scripted, Session, asks_host, session_with
from tests.services import PATIENCE_SECONDS
from workflows.contracts.inputs import MessageInput, RecordedRefusal, RepairInput
from workflows.contracts.steps import RunStep
from workflows.contracts.turns import CallsRepaired, EndTurn, LoadHead, RepairCalls
from workflows.model.state import Head


async def works(session: Session, turns: int) -> None:
    """Another message runs a turn as if nothing had been."""
    await session.say("and now?")
    await session.until(lambda head: head.turn_number == turns and head.last_turn is not None and head.last_turn.error is None)


async def failed(work: Any) -> str:
    with pytest.raises(WorkflowUpdateFailedError) as caught:
        await work
    assert isinstance(caught.value.cause, ApplicationError)
    return caught.value.cause.type or ""


async def test_l12_an_exception_in_an_update_handler_is_answered(temporal: Client) -> None:
    async with session_with(temporal, Scripted(), FaultySession) as session:
        await session.say()
        assert await failed(session.say(IN_HANDLER)) == "Internal"
        await works(session, 2)


async def test_l12_an_exception_in_a_first_input_leaves_no_dead_session(temporal: Client) -> None:
    async with session_with(temporal, Scripted(), FaultySession) as session:
        assert await failed(session.say(IN_HANDLER)) == "Internal"
        await works(session, 1)


async def test_l12_an_exception_in_a_signal_handler_is_recorded(temporal: Client) -> None:
    async with session_with(temporal, Scripted(), FaultySession) as session:
        await session.say()
        await session.handle.signal("message", MessageInput(content=IN_HANDLER))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (refusals := await session.handle.query("refusals", result_type=list[RecordedRefusal])):
                await asyncio.sleep(0.02)
        assert [(refusal.what, refusal.code) for refusal in refusals] == [("message", "internal")]
        await works(session, 2)


async def test_l12_an_exception_in_the_workflows_own_loop_is_survived(temporal: Client) -> None:
    async with session_with(temporal, Scripted(), FaultySession) as session:
        await session.say()
        await session.say(IN_JOB)
        await works(session, 2)


@dataclass
class Garbled(Scripted):
    """A worker of another release: its first step answers what this one can't read."""

    @activity.defn(name="run_step")
    async def garbled_step(self, step: RunStep) -> dict[str, Any]:
        self.asked.append(step)
        return {"state": "an ending of the future" if len(self.steps) == 1 else "answered"}

    @property
    def activities(self) -> list[Any]:
        return [*super().activities[1:], self.garbled_step]


async def test_l12_a_result_that_does_not_decode_ends_its_turn(temporal: Client) -> None:
    scripted = Garbled()
    async with session_with(temporal, scripted) as session:
        await session.say()
        head = await session.until(lambda head: head.turn_number == 1)
        assert head.last_turn and head.last_turn.error and head.last_turn.error.type == "internal"
        assert [end.error.type for end in scripted.of(EndTurn)] == ["internal"]
        await works(session, 2)


@dataclass
class Unrepairable(Scripted):
    @activity.defn
    async def repair_calls(self, repair: RepairCalls) -> CallsRepaired:
        raise ApplicationError("a bug", type="Internal", non_retryable=True)


async def test_l12_a_repair_that_can_not_be_written_is_answered(temporal: Client) -> None:
    async with session_with(temporal, Unrepairable(step=asks_host("c1"))) as session:
        await session.say()
        await session.until(lambda head: head.batch is not None)
        assert await failed(session.send("repair", RepairInput())) == "Internal"
        await session.answer("c1")
        await session.until(lambda head: head.turn_number == 2)


@dataclass
class Forgetful(Scripted):
    loads: int = 0

    @activity.defn
    async def load_head(self, which: LoadHead) -> Head:
        self.loads += 1
        if self.loads == 1:
            raise ApplicationError("a bug", type="Internal", non_retryable=True)
        return self.head


async def test_l12_a_session_that_could_not_be_loaded_is_loaded_by_the_next_input(temporal: Client) -> None:
    async with session_with(temporal, Forgetful()) as session:
        assert await failed(session.say()) == "Internal"
        await session.handle.result()
        assert (await session.handle.describe()).status == WorkflowExecutionStatus.COMPLETED
        await works(session, 1)
