"""The state of one session's workflow: its head, what is queued, and the ids of the recent past."""

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import Field

from workflows.contracts.inputs import AmendInput, CardInput, Input, RecordedRefusal, SteerReceipt
from workflows.contracts.policies import CARRIED_IDS, RECENT_IDS
from workflows.contracts.steps import NewMessage
from workflows.model.base import Record
from workflows.model.call import CallResult
from workflows.model.state import Head, Recent
from workflows.model.turn import TurnConfig, TurnRef

KEPT_REFUSALS = 50


class QueuedTurn(Record):
    """An accepted input that waits for its turn. `turn.number` is assigned when it begins.

    `message` for a message, `result` for a continuation, neither for a retry, which begins with `first_step`, and for steering. A turn that is
    `cancelled` already is recorded as such without a model request. `polite` turns are not cancelled by a later message. One that
    `replaces` hangs where the newest user message hung.
    """

    job: Literal["turn"] = "turn"
    turn: TurnRef
    profile: str
    config: TurnConfig | None = None
    message: NewMessage | None = None
    result: CallResult | None = None
    host_context: dict[str, Any] | None = None
    first_step: int = 1
    runs_model: bool = True
    cancelled: bool = False
    polite: bool = False
    replaces: bool = False


class Steered(Record):
    """Accepted steering of the recent past. Its `receipt` comes once it is noted in the rows."""

    digest: str
    receipt: SteerReceipt | None = None


class QueuedRepair(Record):
    """A repair that waits for its place in the order. `ticket` names it for the one who asked."""

    job: Literal["repair"] = "repair"
    ticket: str


class QueuedCard(Record):
    """A card that waits for its place in the order."""

    job: Literal["card"] = "card"
    ticket: str
    card: CardInput


class QueuedAmend(Record):
    """A change of the session's fields that waits for its place in the order."""

    job: Literal["amend"] = "amend"
    ticket: str
    amend: AmendInput


class QueuedClose(Record):
    """The session's end, once everything before it is done, asked for `by` a principal. No ticket: it expired."""

    job: Literal["close"] = "close"
    ticket: str = ""
    by: str = ""


class QueuedReminder(Record):
    """A host action that has waited for so long that its readers are reminded."""

    job: Literal["reminder"] = "reminder"
    call_id: str


class KeyedAnswer(Record):
    """What was answered under an idempotency key, as JSON; None while it is being worked on."""

    digest: str
    answer: str | None = None


class QueuedRefusal(Record):
    """A refused signal that is to be made readable as an event."""

    job: Literal["refusal"] = "refusal"
    refusal: RecordedRefusal


Job = Annotated[
    QueuedTurn | QueuedRepair | QueuedCard | QueuedAmend | QueuedClose | QueuedReminder | QueuedRefusal, Field(discriminator="job")
]


class SessionState(Record):
    """Everything that a run hands to the next one. Changed by replacement of its fields only, through `SessionWorkflow`."""

    head: Head = Head()
    queue: tuple[Job, ...] = ()
    recent: dict[str, Recent] = Field(default_factory=dict)
    recorded: dict[str, str] = Field(default_factory=dict)
    steered: dict[str, Steered] = Field(default_factory=dict)
    keys: dict[str, KeyedAnswer] = Field(default_factory=dict)
    tombstones: dict[str, str] = Field(default_factory=dict)
    refusals: tuple[RecordedRefusal, ...] = ()


def remember(known: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """`known` with one more entry, the oldest dropped beyond RECENT_IDS."""
    kept = {**known, key: value}
    while len(kept) > RECENT_IDS:
        kept.pop(next(iter(kept)))
    return kept


def carried(state: SessionState) -> SessionState:
    """What the next run needs to know: the newest ids, and those of inputs that still wait, which no row knows yet."""
    waiting = [job for job in state.queue if isinstance(job, QueuedTurn)]
    turns = {job.turn.turn_id for job in waiting}
    calls = {job.result.call_id for job in waiting if job.result}
    messages = {key for key, known in state.recent.items() if known.turn_id in turns}
    return state.model_copy(
        update={
            "recent": newest(state.recent, messages),
            "recorded": newest(state.recorded, calls),
            "steered": newest(state.steered, set()),
        }
    )


def newest(known: dict[str, Any], needed: set[str]) -> dict[str, Any]:
    """The CARRIED_IDS newest entries of `known`, and those that are needed."""
    kept = needed | set(list(known)[-CARRIED_IDS:])
    return {key: value for key, value in known.items() if key in kept}


NO_MEANING = {"id", "digest", "turn_id", "tenant", "principal", "roles", "expected_revision", "key", "rows"}


def body_digest(asked: Input) -> str:
    """SHA-256 (hex) over what an input means. A repeat under the same id must have the same digest (R63, R154)."""
    body = asked.model_dump(mode="json", exclude=NO_MEANING)
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def profile_of(head: Head, asked: str | None) -> str:
    """The profile a turn runs under: the asked one, else the session's, else the worker's default."""
    return asked or head.binding.profile or head.default_profile


Kind = Literal["idle", "running", "waiting_host"]


def status_of(head: Head, running: bool) -> Kind:
    """The session's status as operators and readers see it."""
    if running:
        return "running"
    return "waiting_host" if head.batch else "idle"
