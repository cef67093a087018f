"""The state of one session's workflow: its head, what is queued, and the ids of the recent past."""

import hashlib
import json
from typing import Any, Literal

from pydantic import Field

from workflows.contracts.inputs import MessageInput, RecordedRefusal, SteerInput, SteerReceipt
from workflows.contracts.policies import RECENT_IDS
from workflows.contracts.steps import NewMessage
from workflows.model.base import Record
from workflows.model.call import CallResult
from workflows.model.state import Head, Recent
from workflows.model.turn import TurnConfig, TurnRef

KEPT_REFUSALS = 50


class QueuedTurn(Record):
    """An accepted input that waits for its turn. `turn.number` is assigned when it begins.

    `message` for a message, `result` for a continuation, neither for a retry, which begins with `first_step`, and for steering. A turn that is
    `cancelled` already is recorded as such without a model request. `polite` turns are not cancelled by a later message.
    """

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


class Steered(Record):
    """Accepted steering of the recent past. Its `receipt` comes once it is noted in the rows."""

    digest: str
    receipt: SteerReceipt | None = None


class QueuedRepair(Record):
    """A repair that waits for its place in the order. `ticket` names it for the one who asked."""

    ticket: str


class QueuedRefusal(Record):
    """A refused signal that is to be made readable as an event."""

    refusal: RecordedRefusal


Job = QueuedTurn | QueuedRepair | QueuedRefusal


class SessionState(Record):
    """Everything that a run hands to the next one. Changed by replacement of its fields only, through `SessionWorkflow`."""

    head: Head = Head()
    queue: tuple[Job, ...] = ()
    recent: dict[str, Recent] = Field(default_factory=dict)
    recorded: dict[str, str] = Field(default_factory=dict)
    steered: dict[str, Steered] = Field(default_factory=dict)
    tombstones: dict[str, str] = Field(default_factory=dict)
    refusals: tuple[RecordedRefusal, ...] = ()


def remember(known: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """`known` with one more entry, the oldest dropped beyond RECENT_IDS."""
    kept = {**known, key: value}
    while len(kept) > RECENT_IDS:
        kept.pop(next(iter(kept)))
    return kept


MEANING = {"content", "parent_id", "profile", "subject", "host_context", "config", "when_busy"}


def body_digest(asked: MessageInput | SteerInput) -> str:
    """SHA-256 (hex) over what an input means. A repeat under the same id must have the same digest (R63, R154)."""
    body = asked.model_dump(mode="json", include=MEANING)
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
