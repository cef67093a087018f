"""What a session's retained histories say: each write that was asked for and what came of it, oldest first."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client
from temporalio.converter import DataConverter, WorkflowSerializationContext
from temporalio.service import RPCError

from activities.runs import Runs
from workflows.contracts.carried import SessionState
from workflows.contracts.errors import ServiceUnavailable
from workflows.contracts.inputs import SessionStart
from workflows.contracts.naming import session_workflow_id
from workflows.contracts.sessions import AmendSession, PostCard, Written
from workflows.contracts.steps import RunStep, StepDone
from workflows.contracts.tools import RunTool, SettleCall, ToolDone
from workflows.contracts.turns import CallsRepaired, EndTurn, HandOver, LoadHead, NoteSteering, RepairCalls, SteeringNoted, TurnEnded
from workflows.model.base import Record
from workflows.model.session import SessionRef
from workflows.model.state import Head

WRITES: dict[str, tuple[type[Record], type[Record]]] = {
    "run_step": (RunStep, StepDone),
    "run_tool": (RunTool, ToolDone),
    "settle_call": (SettleCall, ToolDone),
    "hand_over": (HandOver, TurnEnded),
    "end_turn": (EndTurn, TurnEnded),
    "repair_calls": (RepairCalls, CallsRepaired),
    "note_steering": (NoteSteering, SteeringNoted),
    "post_card": (PostCard, Written),
    "amend_session": (AmendSession, Written),
    "load_head": (LoadHead, Head),
}
"""The activities that write rows which are derived, what they take and what they answer. The others write events only, or remove everything."""

CUT = {
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED: "terminated",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCELED: "cancelled",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED: "failed",
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_TIMED_OUT: "timed out",
}
"""How a run ends that does not end by itself, in a word."""

COMPLETED = EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED
ENDED = {
    COMPLETED: "activity_task_completed_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_FAILED: "activity_task_failed_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT: "activity_task_timed_out_event_attributes",
    EventType.EVENT_TYPE_ACTIVITY_TASK_CANCELED: "activity_task_canceled_event_attributes",
}


@dataclass
class Write:
    """One activity: what it was `asked`, when it was scheduled and as which event of which run; what came of it (`done`, None: nothing that
    the workflow was told), and the event that told it (0: it has not ended).
    """

    name: str
    asked: Any
    at: datetime
    run_id: str
    event: int
    done: Any = None
    ended: int = 0


@dataclass
class Run:
    """One retained run. `head` is where the run before left the session, None for one that continues none. `cut`: how it was ended from
    outside, in a word; empty if it was not.
    """

    run_id: str
    began_at: datetime
    continues: str
    head: Head | None
    cut: str = ""
    writes: list[Write] = field(default_factory=list)

    @property
    def under_way(self) -> bool:
        """Whether the end of an activity that writes is not in it."""
        return any(not write.ended for write in self.writes)

    @property
    def torn(self) -> str:
        """How it was cut, if that was in the middle of a write: no history tells the end of it."""
        return self.cut if self.under_way else ""


@dataclass
class Story:
    """The retained runs of a session without a gap, oldest first."""

    runs: list[Run] = field(default_factory=list)

    @property
    def writes(self) -> list[Write]:
        """Every write of every run."""
        return [write for run in self.runs for write in run.writes]

    @property
    def under_way(self) -> bool:
        """Whether an activity that writes has not ended."""
        return bool(self.runs) and self.runs[-1].under_way

    @property
    def torn(self) -> str:
        """How the newest run was cut in the middle of a write, in a word; empty if it was not."""
        return self.runs[-1].torn if self.runs else ""


class Histories:
    """Reads sessions' histories with the converter of `client`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def of(self, session: SessionRef) -> Story:
        """What is retained of a session; nothing if no run is. Raises ServiceUnavailable."""
        workflow_id = session_workflow_id(session.tenant, session.session_id)
        runs = Runs(self._client, workflow_id)
        converter = self._client.data_converter.with_context(
            WorkflowSerializationContext(namespace=self._client.namespace, workflow_id=workflow_id)
        )
        try:
            found = [await _run((await runs.history(run_id)).events, run_id, session, converter) for run_id in await runs.all()]
        except RPCError as error:
            raise ServiceUnavailable("temporal", error.message) from error
        own = sorted((run for run in found if run is not None), key=lambda run: run.began_at)
        return Story(_unbroken(own))


async def _run(events: Sequence[HistoryEvent], run_id: str, session: SessionRef, converter: DataConverter) -> Run | None:
    """A run as far as it is the session's; None if it is another session's of the same name, is gone, or nothing came of it."""
    if not events or await _named(events, converter) not in (None, session.session_uid):
        return None
    began = events[0].workflow_execution_started_event_attributes
    start = await _decoded(converter, began.input.payloads, SessionStart)
    head = SessionState.model_validate_json(start.carried).head if start.carried else None
    run = Run(run_id, _time(events[0]), began.continued_execution_run_id, head, CUT.get(events[-1].event_type, ""))
    run.writes = [write async for write in _writes(events, run_id, converter) if _is_of(write, session)]
    if head is not None and head.session_uid != session.session_uid:
        return None
    return run if head is not None or run.writes else None


async def _named(events: Sequence[HistoryEvent], converter: DataConverter) -> str | None:
    """The session's uid in the memo of a run. Not in that of one that began where rows existed. What else a run says may be gone from storage,
    if it is of an earlier session that is being erased.
    """
    memos = (event.workflow_properties_modified_event_attributes.upserted_memo for event in events)
    noted = [
        memo.fields["session_uid"]
        for memo in (events[0].workflow_execution_started_event_attributes.memo, *memos)
        if "session_uid" in memo.fields
    ]
    return (await converter.decode(noted[:1], [str]))[0] if noted else None


async def session_uid_of(events: Sequence[HistoryEvent], converter: DataConverter) -> str | None:
    """Whose a run is: what its memo says, or what it loaded from the rows where it began there. None if nothing readable says it."""
    if (named := await _named(events, converter)) is not None:
        return named
    loads = {event.event_id for event in events if event.activity_task_scheduled_event_attributes.activity_type.name == "load_head"}
    for event in events:
        loaded = event.activity_task_completed_event_attributes
        if event.event_type == COMPLETED and loaded.scheduled_event_id in loads:
            head: Head = await _decoded(converter, loaded.result.payloads, Head)
            return head.session_uid or None
    return None


async def _writes(events: Sequence[HistoryEvent], run_id: str, converter: DataConverter) -> AsyncIterator[Write]:
    ends: dict[int, HistoryEvent] = {}
    for event in events:
        if event.event_type in ENDED:
            ends[getattr(event, ENDED[event.event_type]).scheduled_event_id] = event
    for event in events:
        scheduled = event.activity_task_scheduled_event_attributes
        if event.event_type != EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED or scheduled.activity_type.name not in WRITES:
            continue
        takes, answers = WRITES[scheduled.activity_type.name]
        asked = await _decoded(converter, scheduled.input.payloads, takes)
        write = Write(scheduled.activity_type.name, asked, _time(event), run_id, event.event_id)
        if end := ends.get(event.event_id):
            write.ended = end.event_id
            if end.event_type == COMPLETED:
                write.done = await _decoded(converter, end.activity_task_completed_event_attributes.result.payloads, answers)
        yield write


async def _decoded(converter: DataConverter, payloads: Sequence[Payload], kind: type[Record]) -> Any:
    return (await converter.decode(payloads, [kind]))[0]


def _is_of(write: Write, session: SessionRef) -> bool:
    """Runs of one workflow id may be those of several sessions that had the name, one after the other."""
    if isinstance(write.asked, LoadHead):
        return write.done is not None and write.done.session_uid == session.session_uid
    uid: str = write.asked.session.session_uid
    return uid == session.session_uid


def _time(event: HistoryEvent) -> datetime:
    return event.event_time.ToDatetime(tzinfo=UTC)


def _unbroken(runs: list[Run]) -> list[Run]:
    """The newest runs between which nothing is missing: no run, and not the end of a write in a run that was cut."""
    kept: list[Run] = []
    for run in runs:
        if kept and kept[-1].torn:
            kept = []
        if run.continues and (not kept or kept[-1].run_id != run.continues):
            kept = []
        kept.append(run)
    return kept


__all__ = ["Histories", "Run", "Story", "Write", "session_uid_of"]
