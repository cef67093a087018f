"""A worker on a machine with too much to do: a session is taken out of its cache in the end, and the worker can go."""

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
from temporalio.client import Client
from temporalio.worker import Worker
from temporalio.worker._workflow import _InterruptDeadlockError

from tests.flows.burdened import Slow, Stubborn
from worker import flow_digest, workflow_runner


@pytest.fixture
async def worker(temporal: Client) -> AsyncIterator[str]:
    """A worker that keeps one workflow in its cache; its task queue."""
    queue = f"burdened-{uuid4()}"
    async with (
        asyncio.timeout(120),
        Worker(
            temporal,
            task_queue=queue,
            workflows=[Slow, Stubborn],
            workflow_runner=workflow_runner(),
            build_id=flow_digest(),
            max_cached_workflows=1,
        ),
    ):
        yield queue


async def test_l12_a_workflow_task_that_takes_too_long_is_done_again_by_the_same_worker(temporal: Client, worker: str) -> None:
    handle = await temporal.start_workflow("Slow", id=worker, task_queue=worker)
    assert await handle.result() == "done"
    events = [event async for event in handle.fetch_history_events()]
    assert any(event.HasField("workflow_task_failed_event_attributes") for event in events), "it was not slow enough"


async def test_l12_a_workflow_that_does_not_let_itself_be_taken_down_makes_way_for_others(
    temporal: Client, worker: str, caplog: pytest.LogCaptureFixture
) -> None:
    handles = []
    for number in range(3):
        handles.append(await temporal.start_workflow("Stubborn", id=f"{worker}-{number}", task_queue=worker))
        while (await handles[-1].describe()).history_length < 4:
            await asyncio.sleep(0.02)
    said = [record.getMessage() for record in caplog.records if record.name == "activities.sandbox"]
    assert len(said) == 2
    for line, handle in zip(said, handles, strict=False):
        assert line.startswith(
            f"workflow {handle.id}, run {handle.first_execution_run_id} does not end its tasks and is set aside: Eviction"
        )
    for handle in handles:
        await handle.terminate()


def test_l12_an_interruption_that_nobody_can_be_told_of_is_no_fault_of_a_test() -> None:
    class Going:
        def __del__(self) -> None:
            raise _InterruptDeadlockError

    Going()
