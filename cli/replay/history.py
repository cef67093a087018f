"""Recorded histories, as files have them."""

import json
from pathlib import Path

from temporalio.api.enums.v1 import EventType
from temporalio.client import WorkflowHistory

from workflows.contracts.errors import OutlastError


class NoHistory(OutlastError):
    """A file that holds no history; says why, in one line."""


def read(path: Path) -> WorkflowHistory:
    """The history of a file, as Temporal's own tools write it as JSON. Raises NoHistory."""
    found = _parsed(path)
    events = found.get("events") if isinstance(found, dict) else None
    if not isinstance(events, list):
        raise NoHistory('it has no list "events"')
    if not events:
        raise NoHistory('its list "events" is empty')
    try:
        history = WorkflowHistory.from_json(path.stem, {"events": events})
    except Exception as error:  # the SDK's parser raises whatever a field of the wrong kind leads it to
        raise NoHistory(f'its list "events" has what is no event of Temporal ({_line(error)})') from error
    for number, event in enumerate(history.events, 1):
        # The SDK's core waits for ever for the end of some histories that have a gap.
        if event.event_id != number:
            raise NoHistory(f"it is not whole: where event {number} should be is event {event.event_id}")
    began = history.events[0].workflow_execution_started_event_attributes
    if not began.workflow_type.name:
        raise NoHistory("its first event is not the start of a workflow")
    return WorkflowHistory(began.workflow_id or path.stem, history.events)


def has_decisions(history: WorkflowHistory) -> bool:
    """Whether a worker has ever answered a task of this run. Before that there are no commands that a replay could be compared with."""
    return any(event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED for event in history.events)


def _parsed(path: Path) -> object:
    try:
        return json.loads(path.read_text())
    except OSError as error:
        raise NoHistory(error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise NoHistory("it is not text") from error
    except ValueError as error:
        raise NoHistory(f"it is not JSON ({error})") from error
    except RecursionError as error:
        raise NoHistory("it is not JSON that can be read: its lists or objects are nested too deep") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


__all__ = ["NoHistory", "has_decisions", "read"]
