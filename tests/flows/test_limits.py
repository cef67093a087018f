"""Each of the limits at which a session continues as new, as it really is: the others are out of reach. On a real server."""

import asyncio

import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter

from tests.flows.scripted import Scripted, Session, ended, session_with
from tests.flows.test_rollover import runs
from tests.services import PATIENCE_SECONDS, running_temporal
from workflows.contracts import policies
from workflows.contracts.inputs import CancelInput

LIMITS = {"ROLL_EVENTS": 600, "ROLL_BYTES": 1_000_000, "ROLL_UPDATES": 200}
NEVER = 10**9


def count(history: WorkflowHistory, kind: "EventType.ValueType") -> int:
    return sum(event.event_type == kind for event in history.events)


async def first_run(session: Session, before: str | None) -> WorkflowHistory:
    """Waits for the end of the run, and answers its history."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await session.handle.describe()).run_id == before:
            await asyncio.sleep(0.02)
    return (await runs(session))[0]


def only(limit: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves one of the real limits, and sets the others out of reach."""
    assert {name: getattr(policies, name) for name in LIMITS} == LIMITS
    for name in LIMITS.keys() - {limit}:
        monkeypatch.setattr(policies, name, NEVER)


async def test_l06_a_run_ends_at_six_hundred_events(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    only("ROLL_EVENTS", monkeypatch)
    async with session_with(temporal, Scripted()) as session:
        await session.say()
        await ended(session, 1)
        run = (await session.handle.describe()).run_id
        while len((await session.handle.fetch_history()).events) < 570:  # four cancels are at most 20 events more
            await asyncio.gather(*(session.send("cancel", CancelInput()) for _ in range(4)))
        assert (await session.handle.describe()).run_id == run
        while (await session.handle.describe()).run_id == run:
            await session.send("cancel", CancelInput())
        assert 600 <= len((await first_run(session, run)).events) < 640


async def test_l06_a_run_ends_at_a_megabyte(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    only("ROLL_BYTES", monkeypatch)
    async with session_with(temporal, Scripted()) as session:
        await session.say()
        run = (await session.handle.describe()).run_id
        for number in range(1, 7):  # each is in its update and in its step
            assert (await session.handle.describe()).run_id == run
            await session.say("x" * 90_000)
            await ended(session, number + 1)
        assert len((await first_run(session, run)).to_json()) > 1_000_000
        assert len((await session.handle.fetch_history()).events) < 10


async def test_l06_a_run_ends_at_two_hundred_updates(temporal: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    only("ROLL_UPDATES", monkeypatch)
    async with session_with(temporal, Scripted()) as session:
        await session.say()
        await ended(session, 1)
        run = (await session.handle.describe()).run_id
        for _ in range(19):
            await asyncio.gather(*(session.send("cancel", CancelInput()) for _ in range(10)))
        assert (await session.handle.describe()).run_id == run
        await asyncio.gather(*(session.send("cancel", CancelInput()) for _ in range(10)))
        updates = count(await first_run(session, run), EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED)
        assert 200 <= updates <= 201


async def test_l06_a_run_ends_when_temporal_suggests_it(monkeypatch: pytest.MonkeyPatch) -> None:
    only(None, monkeypatch)
    with running_temporal(durable=False, dynamic={"limit.historyCount.suggestContinueAsNew": "40"}) as server:
        client = await Client.connect(server.address, data_converter=pydantic_data_converter)
        async with session_with(client, Scripted()) as session:
            await session.say()
            await ended(session, 1)
            run = (await session.handle.describe()).run_id
            for _ in range(6):
                await session.send("cancel", CancelInput())
            assert 40 <= len((await first_run(session, run)).events) < 60
