"""What a session's workflow holds and a run hands to the next one: its head, what is queued, and the ids of the recent past."""

from typing import Annotated, Any, Literal

from pydantic import Field

from workflows.contracts.inputs import AmendInput, CardInput, ContinuationInput, RecordedRefusal, SteerReceipt
from workflows.contracts.steps import NewMessage
from workflows.model.base import Record
from workflows.model.call import CallResult
from workflows.model.state import Head, Recent
from workflows.model.turn import TurnConfig, TurnRef


class Queued(Record):
    """An input that waits for its place in the order. `trace` is what it was part of when it came; None where nothing is traced."""

    trace: dict[str, str] | None = None


class QueuedTurn(Queued):
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


class QueuedRepair(Queued):
    """A repair that waits for its place in the order. `ticket` names it for the one who asked."""

    job: Literal["repair"] = "repair"
    ticket: str


class QueuedCard(Queued):
    """A card that waits for its place in the order."""

    job: Literal["card"] = "card"
    ticket: str
    card: CardInput


class QueuedAmend(Queued):
    """A change of the session's fields that waits for its place in the order."""

    job: Literal["amend"] = "amend"
    ticket: str
    amend: AmendInput


class QueuedClose(Queued):
    """The session's end, once everything before it is done, asked for `by` a principal. No ticket: it expired."""

    job: Literal["close"] = "close"
    ticket: str = ""
    by: str = ""


class QueuedReminder(Queued):
    """A host action that has waited for so long that its readers are reminded."""

    job: Literal["reminder"] = "reminder"
    call_id: str


class KeyedAnswer(Record):
    """What was answered under an idempotency key, as JSON; None while it is being worked on."""

    digest: str
    answer: str | None = None


class QueuedRefusal(Queued):
    """A refused signal that is to be made readable as an event."""

    job: Literal["refusal"] = "refusal"
    refusal: RecordedRefusal


class WaitingResult(Record):
    """A host's result that a signal brought while a turn ran: judged once nothing runs. `what` is the signal's name."""

    what: str
    continuation: ContinuationInput


Job = Annotated[
    QueuedTurn | QueuedRepair | QueuedCard | QueuedAmend | QueuedClose | QueuedReminder | QueuedRefusal, Field(discriminator="job")
]


class SessionState(Record):
    """Everything that a run hands to the next one. Changed by replacement of its fields only, through `SessionWorkflow`.

    `created_at` is when the session's first input was accepted (ISO 8601), once there was one. `steering_number` is that of the newest steering.
    """

    head: Head = Head()
    queue: tuple[Job, ...] = ()
    recent: dict[str, Recent] = Field(default_factory=dict)
    recorded: dict[str, str] = Field(default_factory=dict)
    steered: dict[str, Steered] = Field(default_factory=dict)
    keys: dict[str, KeyedAnswer] = Field(default_factory=dict)
    tombstones: dict[str, str] = Field(default_factory=dict)
    refusals: tuple[RecordedRefusal, ...] = ()
    results: tuple[WaitingResult, ...] = ()
    created_at: str = ""
    steering_number: int = 0
