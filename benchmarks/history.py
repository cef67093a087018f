"""What sessions leave in Temporal: events and bytes, turn by turn, across the runs that followed one another."""

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client

_ROLLED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CONTINUED_AS_NEW
_STARTED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED
_ACCEPTED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
_SCHEDULED = EventType.EVENT_TYPE_WORKFLOW_TASK_SCHEDULED


MOST_RUN_BYTES = 4_000_000
"""That a run of a session may come to (L1)."""


@dataclass(frozen=True)
class TurnCost:
    """One turn's events. `rolled`: the run continued as new in it, which costs two or three events more."""

    events: int
    size: int
    rolled: bool
    by_type: dict[str, int]


@dataclass(frozen=True)
class Run:
    """One run of a workflow: its events, their bytes, and its turns."""

    events: int
    size: int
    turns: list[TurnCost]


def plain(turns: Sequence[TurnCost]) -> Sequence[TurnCost]:
    """The turns in which the run did not continue as new; all of them if it did in each."""
    return [turn for turn in turns if not turn.rolled] or turns


async def all_events(client: Client, workflow_id: str, first: str | None = None) -> list[HistoryEvent]:
    """The events of a workflow and of the runs that it continued as."""
    return [event async for events in _each_run(client, workflow_id, first) for event in events]


async def all_runs(client: Client, workflow_id: str) -> list[Run]:
    """The runs of a workflow, the first one first."""
    return [
        Run(len(events), sum(event.ByteSize() for event in events), by_turn(events))
        async for events in _each_run(client, workflow_id, None)
    ]


async def first_run(client: Client, workflow_id: str) -> str:
    """The id of the run that the others continued."""
    return (await client.get_workflow_handle(workflow_id).describe()).raw_description.workflow_execution_info.first_run_id


async def _each_run(client: Client, workflow_id: str, first: str | None) -> AsyncIterator[list[HistoryEvent]]:
    """The events of run after run. None: from the first one on."""
    run: str | None = first or await first_run(client, workflow_id)
    while run:
        events = list((await client.get_workflow_handle(workflow_id, run_id=run).fetch_history()).events)
        yield events
        last = events[-1]
        run = last.workflow_execution_continued_as_new_event_attributes.new_execution_run_id if last.event_type == _ROLLED else None


def by_turn(events: Sequence[HistoryEvent]) -> list[TurnCost]:
    """Splits a history where each update's workflow task was scheduled: what came of an input belongs to it.

    The first turn has the start of the workflow too.
    """
    cuts = [_begin(events, index) for index, event in enumerate(events) if event.event_type == _ACCEPTED]
    ends = [*cuts[1:], len(events)]
    return [_cost(events[begin:end]) for begin, end in zip([0, *cuts[1:]], ends, strict=True)] if cuts else []


def _begin(events: Sequence[HistoryEvent], accepted: int) -> int:
    while accepted and events[accepted].event_type != _SCHEDULED:
        accepted -= 1
    return accepted


def _cost(events: Sequence[HistoryEvent]) -> TurnCost:
    by_type: Counter[str] = Counter()
    for event in events:
        by_type[EventType.Name(event.event_type).removeprefix("EVENT_TYPE_")] += event.ByteSize()
    rolled = any(event.event_type in (_ROLLED, _STARTED) for event in events)
    return TurnCost(len(events), sum(by_type.values()), rolled, dict(by_type))
