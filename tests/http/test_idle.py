"""Months in which nothing happens, with rollovers in between: what waits is there, what is due comes to the second. Time is skipped."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from temporalio.client import Client
from temporalio.testing import TimeSkipper

from activities.runs import Runs
from cli.services.temporal import TemporalServer
from tests.everything import rolled
from tests.models import calls, says, script
from tests.services import running_temporal
from tests.system import System, running_system

TTL = timedelta(days=100)


@pytest.fixture(scope="module")
def server() -> Iterator[TemporalServer]:
    with running_temporal(durable=False, dynamic={"frontend.WorkflowTimeSkippingEnabled": "true"}) as server:
        yield server


async def at(system: System, event: str) -> list[datetime]:
    rows = await system.conn.fetch("select at from events where type = $1 order by seq", event)
    return [row["at"] for row in rows]


def to_the_second(begun: datetime, due: datetime, after: timedelta) -> bool:
    """Never early, and late by no more than a slow machine takes; it would be five minutes if skipped time counted."""
    return after <= due - begun <= after + timedelta(minutes=1)


async def test_s58_a_reminder_and_a_deadline_come_when_they_are_due_however_often_the_session_rolls(
    database_url: str, server: TemporalServer
) -> None:
    scripted = script(calls(("c1", "later", {}), ("c2", "open_page", {"url": "u"})), says("Went on."))
    skipper = TimeSkipper(await Client.connect(server.address))
    async with running_system(database_url, server.address, scripted) as system:
        session = system.workflow("s1")
        await system.chat("s1", profile="first")
        (asked,) = await at(system, "host_action.pending")
        for hours, minutes, reminders in ((4, 50, 0), (0, 15, 1), (4, 50, 1)):
            await skipper.fast_forward(session, timedelta(hours=hours, minutes=minutes))
            await system.until(lambda reminders=reminders: counts(system, "host_action.reminder", reminders))  # type: ignore[misc]
            await rolls(system, "s1")
            assert (await system.get("/sessions/s1"))["pending_action"]["tool_call_id"] == "c1"
        await skipper.fast_forward(session, timedelta(minutes=10))
        await system.until(lambda: counts(system, "host_action.expired", 1))
        (reminded,), (expired,) = await at(system, "host_action.reminder"), await at(system, "host_action.expired")
        assert to_the_second(asked, reminded, timedelta(hours=5))
        assert to_the_second(asked, expired, timedelta(hours=10))
        await rolls(system, "s1")
        assert (await system.get("/sessions/s1"))["pending_action"]["tool_call_id"] == "c2", "the rest of the batch waits on"
        assert (await system.resume("s1", "c2")).json()["content"] == "Went on."


async def rolls(system: System, session: str) -> None:
    """The session continues as new, and its new run has begun to wait: time that is skipped before is lost on it."""
    await rolled(system, session)

    async def begun() -> bool:
        events = (await system.workflow(session).fetch_history()).events
        return any(event.HasField("workflow_task_completed_event_attributes") for event in events)

    await system.until(begun)


async def counts(system: System, event: str, count: int) -> bool:
    return len(await at(system, event)) == count


async def forget_the_past(system: System, session: str) -> int:
    """Removes a session's closed runs, as Temporal does after the retention."""
    runs = Runs(system.temporal, system.workflow(session).id)
    closed = [run_id for run_id, is_open in (await runs.all()).items() if not is_open]
    for run_id in closed:
        await runs.delete(run_id)
    return len(closed)


async def test_l06_r176_after_ninety_idle_days_and_without_its_past_a_session_goes_on_and_expires_in_time(
    database_url: str, server: TemporalServer
) -> None:
    skipper = TimeSkipper(await Client.connect(server.address))
    ttl = TTL.total_seconds() / 3600
    async with running_system(database_url, server.address, script(says("Hello.")), session_ttl_hours=ttl) as system:
        session = system.workflow("s1")
        first = await system.chat("s1", "one", id="m1")
        for _ in range(2):
            await rolls(system, "s1")
        assert await forget_the_past(system, "s1") == 2
        await skipper.fast_forward(session, timedelta(days=90))
        assert (await system.chat("s1", "one", id="m1"))["turn_id"] == first["turn_id"], "a known id is known"
        answer = await system.chat("s1", "are you there?")
        assert (answer["content"], answer["turn_number"]) == ("Hello.", 2)
        assert [row["content"] for row in await system.messages("s1")] == ["one", "Hello.", "are you there?", "Hello."]
        await rolls(system, "s1")
        # The end of a turn moves the expiry, by an activity's clock, whose time is not skipped: it is still a hundred days from the start.
        await skipper.fast_forward(session, TTL - timedelta(days=90, hours=1))
        assert (await system.get("/sessions/s1"))["turn_number"] == 2
        await skipper.fast_forward(session, timedelta(hours=2))

        async def gone() -> bool:
            return (await system.http.get("/api/sessions/s1")).status_code == 404

        await system.until(gone)
