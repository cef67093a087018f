"""Rule 3 of docs/rules.md: data passes through the workflow sandbox by exact name, logic does not, and the sandbox is shut."""

from datetime import UTC, datetime

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent, WorkflowExecutionStartedEventAttributes, WorkflowTaskCompletedEventAttributes
from temporalio.api.history.v1 import WorkflowExecutionCompletedEventAttributes as Completed
from temporalio.api.history.v1 import WorkflowTaskScheduledEventAttributes as Scheduled
from temporalio.api.history.v1 import WorkflowTaskStartedEventAttributes as Started
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

import worker
from tests.architecture.canary import Canary, Obedient
from tests.architecture.sources import ROOT

DATA = ("workflows/model", "workflows/contracts")


def data_modules() -> set[str]:
    """The modules that may pass: leaves of the model and the contracts."""
    files = [path for folder in DATA for path in (ROOT / folder).glob("*.py") if path.stem != "__init__"]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files}


def misplaced(passed: set[str]) -> list[str]:
    """What passes and should not, or the other way round. A package would take all below it along."""
    return sorted(passed ^ data_modules())


def one_task(workflow: type) -> WorkflowHistory:
    """The history of a workflow that ended in its first task."""
    kinds = EventType
    events = [
        HistoryEvent(
            event_type=kinds.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED,
            workflow_execution_started_event_attributes=WorkflowExecutionStartedEventAttributes(original_execution_run_id="run"),
        ),
        HistoryEvent(event_type=kinds.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED, workflow_task_scheduled_event_attributes=Scheduled()),
        HistoryEvent(
            event_type=kinds.EVENT_TYPE_WORKFLOW_TASK_STARTED, workflow_task_started_event_attributes=Started(scheduled_event_id=2)
        ),
        HistoryEvent(
            event_type=kinds.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
            workflow_task_completed_event_attributes=WorkflowTaskCompletedEventAttributes(scheduled_event_id=2, started_event_id=3),
        ),
        HistoryEvent(
            event_type=kinds.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED,
            workflow_execution_completed_event_attributes=Completed(workflow_task_completed_event_id=4),
        ),
    ]
    start = events[0].workflow_execution_started_event_attributes
    start.workflow_type.name = workflow.__name__
    start.task_queue.name = "queue"
    for number, event in enumerate(events, 1):
        event.event_id = number
        event.event_time.FromDatetime(datetime(2026, 1, 1, tzinfo=UTC))
    return WorkflowHistory("canary", events)


async def replayed(workflow: type) -> Exception | None:
    """What goes wrong when a workflow is replayed in the sandbox of real workers."""
    replayer = Replayer(workflows=[workflow], workflow_runner=worker.workflow_runner(), build_id="canary")
    result = await replayer.replay_workflow(one_task(workflow), raise_on_replay_failure=False)
    return result.replay_failure


def test_style03_exactly_the_data_passes_through() -> None:
    assert misplaced(set(worker.PASSED_THROUGH)) == []


def test_style03_a_module_too_many_is_found() -> None:
    assert misplaced(data_modules() | {"workflows.rules.admission"}) == ["workflows.rules.admission"]
    assert misplaced(data_modules() | {"workflows"}) == ["workflows"]


def test_style03_the_list_is_what_workers_use() -> None:
    passed = worker.workflow_runner().restrictions.passthrough_modules
    ours = {name for name in passed if name.split(".")[0] in ("workflows", "activities", "api", "profiles", "cli", "settings", "tests")}
    assert ours == set(worker.PASSED_THROUGH)


async def test_style03_the_canary_is_stopped() -> None:
    assert await replayed(Obedient) is None
    failure = await replayed(Canary)
    assert failure is not None
    assert "Cannot access datetime.datetime.now" in str(failure)
