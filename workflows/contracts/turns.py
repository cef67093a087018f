"""Writes of a turn that need no model: results in the middle of a batch, endings that the workflow decides, repair, the head."""

from typing import Any

from temporalio import activity

from workflows.contracts.inputs import RecordedRefusal
from workflows.contracts.steps import Opening, ShownSegment
from workflows.contracts.tools import ToolDone
from workflows.model.base import Record
from workflows.model.call import CallResult
from workflows.model.session import SessionRef
from workflows.model.state import Head
from workflows.model.turn import TurnConfig, TurnError, TurnRef


class HandOver(Record):
    """A host's result while other calls of its batch still wait: recorded, and the next call is shown. A turn without a model request."""

    session: SessionRef
    turn: TurnRef
    result: CallResult
    revision: int
    host_context: dict[str, Any] | None = None


class EndTurn(Record):
    """Ends a turn from outside its step. Keeps what was streamed; calls without a result become `cancelled`.

    `opening` is the turn's own, for the case that its first step never came to write it.
    """

    session: SessionRef
    turn: TurnRef
    step: int
    error: TurnError
    revision: int
    profile: str = ""
    config: TurnConfig | None = None
    opening: Opening | None = None


class TurnEnded(Record):
    """`response` is the partial model message that was kept, as JSON text (empty: nothing was streamed). `refused`: the rows refused
    the turn's input (`refused_code`, `refused_why`), and nothing was written. `kept` is what was shown of the step, where that is more than the response. `closed` is the
    step's end, as JSON text of a StepDone, if the rows have one that the workflow was never told of; `waiting` says that the turn had
    ended by asking the host, after the server's calls of the step had the results that `tools` are. `message_id` is the assistant message that
    it wrote to (empty: it wrote none).
    """

    response: str = ""
    kept: tuple[ShownSegment, ...] = ()
    closed: str = ""
    waiting: bool = False
    tools: tuple[ToolDone, ...] = ()
    message_id: str = ""
    refused: bool = False
    refused_code: str = ""
    refused_why: str = ""
    at: str = ""
    expires_at: str = ""


class RepairCalls(Record):
    """Resolves the pending action and every open call as `unknown`."""

    session: SessionRef
    revision: int
    at: str


class CallsRepaired(Record):
    """What a repair did. It `raised` the session's revision, also by closing a batch that waited for nothing."""

    cleared_pending: str | None = None
    repaired_calls: tuple[str, ...] = ()
    raised: bool = False

    @property
    def changed(self) -> bool:
        """True if a row was touched."""
        return bool(self.raised or self.cleared_pending or self.repaired_calls)


class NoteSteering(Record):
    """Steering that was accepted. `own_turn_id` is the turn that it gets if it is promoted. It `insists` on the session's revision.

    `number` is its place in the order of acceptance, which several that are noted side by side keep (0: by a release that left it to the rows).
    """

    session: SessionRef
    id: str
    content: str
    digest: str
    profile: str | None = None
    accepted_at: str
    own_turn_id: str | None = None
    insists: bool = False
    number: int = 0


class SteeringNoted(Record):
    """What the rows showed in the transaction that noted it: the newest turn and whether it was running under which profile,
    whether the host was awaited, and whether a step has taken the steering already.
    """

    newest_turn: str | None = None
    newest_attempt: int = 0
    taken: bool = False
    running_profile: str | None = None
    waiting: bool = False


class RecordRefusal(Record):
    """A signal that was refused, to be announced as event `input.refused`."""

    session: SessionRef
    refusal: RecordedRefusal


class LoadHead(Record):
    """Which session to look for."""

    tenant: str
    session_id: str


@activity.defn
async def hand_over(step: HandOver) -> TurnEnded:
    """Records a result in the middle of a batch and shows the next call, in one transaction."""
    raise NotImplementedError


@activity.defn
async def end_turn(end: EndTurn) -> TurnEnded:
    """Ends a turn that its step can't end. Repeatable: an ended turn stays as it is."""
    raise NotImplementedError


@activity.defn
async def repair_calls(repair: RepairCalls) -> CallsRepaired:
    """Resolves everything that is open, in one transaction."""
    raise NotImplementedError


@activity.defn
async def note_steering(steering: NoteSteering) -> SteeringNoted:
    """Stores steering as pending and tells where it arrived."""
    raise NotImplementedError


@activity.defn
async def record_refusal(refused: RecordRefusal) -> None:
    """Announces a refused signal to the session's readers."""
    raise NotImplementedError


@activity.defn
async def load_head(which: LoadHead) -> Head:
    """Where the rows say the session stands; an unborn head with the worker's default profile if there are none."""
    raise NotImplementedError
