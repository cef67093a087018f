"""Long lives: what a session costs does not grow with its length, and waiting costs nothing."""

import asyncio
import os
from datetime import timedelta
from itertools import pairwise

import pytest
from temporalio.client import Client
from temporalio.testing import TimeSkipper

from activities.runs import Runs
from tests.models import calls, says, script
from tests.services import running_temporal
from tests.system import System, running_system
from workflows.contracts import policies

LONG = os.environ.get("TEST_LONG") == "1"
TURNS, WINDOW, ROLL_EVENTS = (1000, 100, policies.ROLL_EVENTS) if LONG else (180, 60, 150)
STEPS = 100 if LONG else 15
SESSIONS = 5000 if LONG else 40
FIRST_WINDOW = 0 if LONG else 1  # the first rollovers carry few ids yet, which only a short test notices
MOST_BYTES = 4_000_000
FLAT = 1.1


async def bytes_of(system: System, session: str) -> list[int]:
    """The history sizes of a session's runs."""
    workflow_id = system.workflow(session).id
    newest = (await system.workflow(session).describe()).run_id
    assert newest is not None
    sizes = []
    async for run_id in Runs(system.temporal, workflow_id).chain(newest):
        described = await system.temporal.get_workflow_handle(workflow_id, run_id=run_id).describe()
        sizes.append(described.raw_description.workflow_execution_info.history_size_bytes)
    return sizes


async def test_l01_the_last_turns_cost_what_the_first_ones_did(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then come turns with a hundred tool calls of 5 kB, one after the other and all at once. A shorter test rolls over more often, so that each
    window has its share, and makes fewer calls after one another.
    """
    monkeypatch.setattr(policies, "ROLL_EVENTS", ROLL_EVENTS)
    scripted = script(says("y" * 800))
    async with running_system(database_url, temporal_address, scripted, max_steps=STEPS + 1) as system:
        totals = [0]
        for number in range(1, TURNS + 1):
            await system.chat("s1", "x" * 800)
            if number % WINDOW == 0:
                await system.idle("s1", number)
                totals.append(sum(await bytes_of(system, "s1")))
        windows = [after - before for before, after in pairwise(totals)]
        first, last = windows[FIRST_WINDOW], windows[-1]
        assert last / first <= FLAT, totals
        many = [(f"c{number}", "big", {"characters": 5000}) for number in range(100)]
        scripted.then(*[calls(one) for one in many[:STEPS]], says("done"), calls(*many), says("done"))
        for number, content, count in ((1, "one by one", STEPS), (2, "now all at once", 100)):
            before = sum(await bytes_of(system, "s1"))
            assert (await system.chat("s1", content))["content"] == "done"
            await system.idle("s1", TURNS + number)
            assert sum(await bytes_of(system, "s1")) - before < 3 * 5000 * count
        assert max(await bytes_of(system, "s1")) < MOST_BYTES


async def test_l05_no_workflow_but_the_sessions_own_is_on_the_path(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("hi"))) as system:
        gate = asyncio.Semaphore(20)

        async def one(number: int) -> None:
            async with gate:
                await system.chat(f"s{number}")

        await asyncio.gather(*(one(number) for number in range(SESSIONS)))
        query = f"TaskQueue = '{system.settings.task_queue}'"

        async def all_there() -> bool:
            return (await system.temporal.count_workflows(query)).count >= SESSIONS

        await system.until(all_there)
        found = {workflow.id async for workflow in system.temporal.list_workflows(query)}
        assert found == {system.workflow(f"s{number}").id for number in range(SESSIONS)}


async def test_r136_after_a_month_the_host_may_still_answer(database_url: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("At last."))
    with running_temporal(dynamic={"frontend.WorkflowTimeSkippingEnabled": "true"}) as server:
        skipper = TimeSkipper(await Client.connect(server.address))
        async with running_system(database_url, server.address, scripted) as system:
            await system.chat("s1")
            before = await system.events("s1")
            await skipper.fast_forward(system.workflow("s1"), timedelta(days=31))
            assert await system.events("s1") == before
            assert (await system.get("/sessions/s1"))["pending_action"]["tool_call_id"] == "c1"
            answer = await system.resume("s1", "c1")
            assert (answer.status_code, answer.json()["content"]) == (200, "At last.")
            assert len(scripted.requests) == 2
