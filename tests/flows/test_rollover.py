"""Continuing as new: when, under whatever comes, and with what. On a real server; what activities do is scripted."""

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

import pytest
from temporalio import activity
from temporalio.api.sdk.v1 import WorkflowMetadata
from temporalio.client import Client, WorkflowHistory
from temporalio.service import RPCError, RPCStatusCode

from tests.chains import chain_of
from tests.flows.scripted import AT, Scripted, Session, answers, asks_host, ended, refused, session_with
from tests.flows.test_meeting import held, held_noting
from tests.flows.test_repeats import rolled
from tests.services import PATIENCE_SECONDS
from workflows.contracts import policies
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import (
    AmendInput,
    CancelInput,
    CardInput,
    CloseInput,
    ContinuationInput,
    RepairInput,
    RetryInput,
    SteerInput,
)
from workflows.contracts.steps import RunStep, StepDone
from workflows.contracts.turns import LoadHead
from workflows.model.state import Head

EVERY = {
    "continuation": ContinuationInput(tool_call_id="c1"),
    "steer": SteerInput(id="g2", content="b"),
    "card": CardInput(),
    "amend": AmendInput(),
    "cancel": CancelInput(),
    "repair": RepairInput(),
    "retry": RetryInput(turn_id="t1"),
    "close": CloseInput(),
}


async def runs(session: Session) -> list[WorkflowHistory]:
    """The histories of a session's runs, oldest first."""
    return await chain_of(session.client, session.workflow_id)


async def test_l06_who_waits_for_a_turn_holds_up_no_run_that_is_due(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns follow each other, and somebody always waits for the end of one, with all the patience in the world."""
    monkeypatch.setattr(policies, "ROLL_EVENTS", 40)
    monkeypatch.setattr(policies, "LATE_INPUT_WAIT", timedelta(hours=1))
    stop = asyncio.Event()

    async def waits_for_quiet(session: Session) -> None:
        while not stop.is_set():
            with pytest.raises(Refusal):
                await session.answer("nobody-asked")

    async with session_with(temporal, Scripted()) as session:
        await session.say()
        waiting = [asyncio.create_task(waits_for_quiet(session)) for _ in range(2)]
        for _ in range(10):
            await asyncio.gather(*(session.say(when_busy="enqueue") for _ in range(4)))
        await ended(session, 41)
        stop.set()
        await asyncio.gather(*waiting)
        lengths = [len(run.events) for run in await runs(session)]
    assert len(lengths) > 6 and max(lengths) < 160, lengths


async def test_l07_a_message_before_during_and_after_a_rollover_is_one_turn(temporal: Client) -> None:
    """During: a handler is under way, so the run can't end yet; who comes then is asked to come again."""
    noting, go_on = asyncio.Event(), asyncio.Event()
    scripted = Scripted(noting=held_noting(noting, go_on, waiting=True))
    async with session_with(temporal, scripted) as session:
        before = await session.say("hi", id="m1")
        await ended(session, 1)
        run = (await session.handle.describe()).run_id
        steering = asyncio.create_task(session.send("steer", SteerInput(id="g1", content="brief")))
        await noting.wait()
        await session.handle.signal("roll")
        await drains(session)
        during = [asyncio.create_task(session.say("ho", id="m2")) for _ in range(2)]
        again = asyncio.create_task(session.say("hi", id="m1"))
        for name, asked in EVERY.items():
            assert (await once(session, name, asked)).code == "rolling", name
        assert not any(one.done() for one in (*during, again, steering))
        go_on.set()
        assert (await steering)["delivery"] == "queued"
        turns = {answer["turn_id"] for answer in await asyncio.gather(*during)}
        assert (await again)["turn_id"] == before["turn_id"]
        await ended(session, 2)
        assert turns == {(await session.say("ho", id="m2"))["turn_id"]} and len(turns) == 1
        assert (await session.handle.describe()).run_id != run
    assert len(scripted.steps) == 2


async def once(session: Session, name: str, asked: object) -> Refusal:
    """An update that is not offered again."""
    return await refused(session._once(name, asked, f"{name}-once"))  # type: ignore[arg-type]


async def drains(session: Session) -> None:
    """Waits until the session refuses to begin anything else in this run."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            try:
                await session._once("cancel", CancelInput(), f"drains-{uuid4()}")
            except Refusal as refusal:
                assert refusal.code == "rolling"
                return
            await asyncio.sleep(0.02)


async def test_r73_a_result_by_signal_that_waits_for_a_turn_travels(temporal: Client) -> None:
    go_on = asyncio.Event()
    scripted = Scripted(step=held(go_on, 1, then=asks_host("c1")))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await session.until(lambda head: head.born)
        run = (await session.handle.describe()).run_id
        for name, payloads in (("host_result", [ContinuationInput(tool_call_id="c1")]), ("roll", [])):
            await session.handle.signal(name, args=payloads)
        go_on.set()
        await ended(session, 2)
        assert (await session.handle.describe()).run_id != run
        assert await session.handle.query("refusals") == []
    assert [step.turn.kind for step in scripted.steps] == ["message", "continuation"]


async def test_l07_what_waits_behind_a_live_turn_travels_when_it_has_ended(temporal: Client) -> None:
    """Turns in their order, one that was cancelled before it came, a refusal, and a key's answer."""
    go_on = asyncio.Event()
    scripted = Scripted(step=held(go_on, 1))
    async with session_with(temporal, scripted) as session:
        await session.say()
        await session.handle.signal("continuation", {"no": "result"})
        kept = await session.send("cancel", CancelInput(turn_id="never", key="k"))
        sent = [await session.say(f"{number}", id=f"m{number}", when_busy="enqueue") for number in range(3)]
        run = (await session.handle.describe()).run_id
        await session.handle.signal("roll")
        go_on.set()
        await session.say("too late", turn_id="never", when_busy="enqueue")
        head = await session.until(lambda head: head.turn_number == 5)
        assert (await session.handle.describe()).run_id != run
        assert head.last_turn and head.last_turn.error and head.last_turn.error.type == "cancelled"
        assert await session.send("cancel", CancelInput(turn_id="never", key="k")) == kept
        assert [refusal["code"] for refusal in await session.handle.query("refusals")] == ["bad_request"]
        again = [await session.say(f"{number}", id=f"m{number}", when_busy="enqueue") for number in range(3)]
        assert [one["turn_id"] for one in again] == [one["turn_id"] for one in sent]
    assert [step.turn.number for step in scripted.steps] == [1, 2, 3, 4, 5]


@dataclass
class LoadsLate(Scripted):
    """Says where the rows stand once `loading` is set."""

    loading: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn
    async def load_head(self, which: LoadHead) -> Head:
        await self.loading.wait()
        return self.head


async def test_r58_a_session_that_rolls_before_its_first_turn_was_made_when_its_message_came(temporal: Client) -> None:
    scripted = LoadsLate()
    async with session_with(temporal, scripted) as session:
        sent = asyncio.create_task(session.say())
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                try:
                    await session.handle.signal("roll")
                    break
                except RPCError:
                    await asyncio.sleep(0.02)
        scripted.loading.set()
        await sent
        await ended(session, 1)
        assert len(await runs(session)) == 2
        (step,) = scripted.steps
        assert step.opening and step.opening.birth
        assert step.opening.birth.created_at == step.turn.accepted_at


async def test_s40_a_run_that_begins_shows_operators_where_the_session_stands(temporal: Client) -> None:
    async with session_with(temporal, Scripted(step=asks_host("c1"))) as session:
        await session.say()
        await ended(session, 1)
        shown = [await details(session)]
        await rolled(session)
        shown.append(await details(session))
        assert "open_page" in shown[0] and shown[1] == shown[0]


async def details(session: Session) -> str:
    metadata: WorkflowMetadata = await session.handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
    return metadata.current_details


async def test_l09_what_is_aimed_at_a_run_that_has_ended_is_told_so_and_harms_nothing(temporal: Client) -> None:
    under_way = asyncio.Event()

    async def slow(step: RunStep) -> StepDone:
        if step.turn.number == 1:
            return await answers(step)
        under_way.set()
        await asyncio.Event().wait()
        return StepDone(state="answered", at=AT)

    async with session_with(temporal, Scripted(step=slow)) as session:
        await session.say()
        await ended(session, 1)
        old = temporal.get_workflow_handle(session.workflow_id, run_id=(await session.handle.describe()).run_id)
        await rolled(session)
        await rolled(session)
        await session.say()
        await under_way.wait()
        for attempt in (old.signal("cancel", CancelInput()), old.execute_update("cancel", CancelInput())):
            with pytest.raises(RPCError) as told:
                await attempt
            assert told.value.status == RPCStatusCode.NOT_FOUND
        assert (await session.head()).turn_number == 1
        await session.handle.signal("cancel", CancelInput())
        head = await session.until(lambda head: head.turn_number == 2)
        assert head.last_turn and head.last_turn.error and head.last_turn.error.type == "cancelled"
