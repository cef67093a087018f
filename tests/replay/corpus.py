"""What the kept histories are of: the workflow types, handlers, activities, timers and kinds of events in them."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter

from tests.replay.record import HISTORIES, SEALED_HISTORIES

KEPT = sorted(HISTORIES.glob("*.json"))
SEALED = sorted(SEALED_HISTORIES.glob("*.json"))
Events = Sequence[HistoryEvent]


def kept(path: Path) -> WorkflowHistory:
    """A kept history, under the id of its workflow, which its first event has."""
    events = WorkflowHistory.from_json("", path.read_text()).events
    return WorkflowHistory(events[0].workflow_execution_started_event_attributes.workflow_id, events)


def used(events: Events) -> Iterator[str]:
    """What a history uses, by kind and name."""
    for event in events:
        match event.WhichOneof("attributes"):
            case "workflow_execution_started_event_attributes":
                yield f"workflow {event.workflow_execution_started_event_attributes.workflow_type.name}"
            case "workflow_execution_update_accepted_event_attributes":
                yield f"update {event.workflow_execution_update_accepted_event_attributes.accepted_request.input.name}"
            case "workflow_execution_signaled_event_attributes":
                yield f"signal {event.workflow_execution_signaled_event_attributes.signal_name}"
            case "activity_task_scheduled_event_attributes":
                yield f"activity {event.activity_task_scheduled_event_attributes.activity_type.name}"
            case "timer_started_event_attributes":
                yield f"timer {_text(event.user_metadata.summary)}"
            case "marker_recorded_event_attributes":
                marker = event.marker_recorded_event_attributes
                yield f"{marker.marker_name} {' '.join(_text(one) for part in marker.details.values() for one in part.payloads)}"
            case _:
                pass


def _text(payload: Payload) -> str:
    return str(DataConverter.default.payload_converter.from_payload(payload)) if payload.data else ""


def _any(kind: "EventType.ValueType") -> Callable[[Events], bool]:
    return lambda events: any(event.event_type == kind for event in events)


def refused_update(events: Events) -> bool:
    """An update that came into the history and failed there."""
    return any(event.workflow_execution_update_completed_event_attributes.outcome.HasField("failure") for event in events)


def queue_travels(events: Events) -> bool:
    """A run that hands on inputs which wait."""
    ended = [event.workflow_execution_continued_as_new_event_attributes.input for event in events]
    return any(b'\\"queue\\":[{' in payload.data for arguments in ended for payload in arguments.payloads)


def met(events: Events, *kinds: "EventType.ValueType") -> bool:
    """Whether one task brought events of all these kinds at once (L10)."""
    brought: set[int] = set()
    for event in events:
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_STARTED:
            if brought >= set(kinds):
                return True
            brought = set()
        brought.add(event.event_type)
    return False


FEATURES: dict[str, Callable[[Events], bool]] = {
    "a run that continues as new": _any(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW),
    "a run that ends": _any(EventType.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED),
    "inputs that travel": queue_travels,
    "an activity that is cancelled": _any(EventType.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED),
    "a timer that fires": _any(EventType.EVENT_TYPE_TIMER_FIRED),
    "a timer that is given up": _any(EventType.EVENT_TYPE_TIMER_CANCELED),
    "a child workflow": _any(EventType.EVENT_TYPE_START_CHILD_WORKFLOW_EXECUTION_INITIATED),
    "search attributes": _any(EventType.EVENT_TYPE_UPSERT_WORKFLOW_SEARCH_ATTRIBUTES),
    "a memo": _any(EventType.EVENT_TYPE_WORKFLOW_PROPERTIES_MODIFIED),
    "an update that is refused in the history": refused_update,
    "an input and a result in one task": lambda events: met(
        events, EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED, EventType.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED
    ),
}
