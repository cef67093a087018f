"""Payloads of updates and signals: the HTTP body plus who sent it, and what the rows said when the api looked."""

from typing import Any, Literal

from pydantic import Field

from workflows.model.attachment import Attachment
from workflows.model.base import Record
from workflows.model.session import Caller
from workflows.model.turn import TurnConfig


class RowsSaid(Record):
    """What the rows showed before the workflow was asked. Ids younger than that are in the workflow's own state.

    `session_uid` is the session that was looked at, None if there was none. `parent` says whether the named parent was found,
    `turn` whether the named turn was. `ended_turn` is the session's newest turn if it has ended: what the workflow may not know yet.
    """

    session_uid: str | None = None
    parent: bool = False
    turn: bool = False
    ended_turn: str | None = None


class Input(Record):
    """What every input carries.

    `expected_revision`: the input is refused unless it is the session's. `key`: the same key with the same body is the same input
    and gets the same answer.
    """

    tenant: str = "default"
    principal: str = "local"
    roles: tuple[str, ...] = ()
    expected_revision: int | None = None
    key: str | None = None
    rows: RowsSaid | None = None

    @property
    def caller(self) -> Caller:
        """Who sent it."""
        return Caller(tenant=self.tenant, principal=self.principal, roles=self.roles)


class MessageInput(Input):
    """A user's message. `digest` (SHA-256 of the canonical body) tells a repeat from another body under the same id.

    `attachments` are the message's files and, behind them, those of its host context.
    """

    id: str = ""
    turn_id: str | None = None
    content: str = ""
    digest: str = ""
    parent_id: str | None = None
    profile: str | None = None
    subject: str | None = None
    host_context: dict[str, Any] | None = None
    config: TurnConfig | None = None
    attachments: tuple[Attachment, ...] = ()
    when_busy: Literal["interrupt", "enqueue", "reject", "replace"] = "interrupt"


class PauseSaid(Record):
    """What a pause token is bound to, beside its call: the result fits only while session, owner and arguments are these (L16)."""

    session_uid: str
    owner: str
    arguments_digest: str


class ContinuationInput(Input):
    """A host's result for the pending call. `tool_result` is any JSON value, `pause` what the pause token says that it came with.

    The api sends `result_json` instead, the value as JSON text: a workflow that took megabytes apart would not be done within the two
    seconds that a workflow task may think, and never again answer. `result_digest` (SHA-256 of canonical JSON) stands for it where a repeat
    is told from another result.
    """

    tool_call_id: str
    tool_result: Any = None
    result_json: str | None = None
    result_digest: str = ""
    tool_outcome: Literal["success", "failed", "denied"] = "success"
    turn_id: str | None = None
    host_context: dict[str, Any] | None = None
    pause: PauseSaid | None = None


class SteerInput(Input):
    """Words for the turn that runs, or for the next one of their profile (None: of any)."""

    id: str = ""
    content: str = ""
    digest: str = ""
    profile: str | None = None
    turn_id: str | None = None


class CancelInput(Input):
    """Ends the live turn, or the named one whenever it comes."""

    turn_id: str | None = None


class CardInput(Input):
    """A host card: something that the host shows in the conversation. The model reads `content`, never the components."""

    id: str = ""
    segments: list[dict[str, Any]] = Field(default_factory=list)
    content: str = ""
    digest: str = ""
    profile: str | None = None
    subject: str | None = None


class AmendInput(Input):
    """Changes of a session's own fields; what is not in `fields` stays. `active_leaf_id` supersedes a pending action, as a branch does."""

    fields: tuple[Literal["title", "owner_id", "active_leaf_id"], ...] = ()
    title: str | None = None
    owner_id: str | None = None
    active_leaf_id: str | None = None


class CloseInput(Input):
    """Deletes the session: cancels, drains, removes its rows, then its histories."""


class RepairInput(Input):
    """Resolves the pending action and every open call as `unknown`."""


class RetryInput(Input):
    """Runs the failed step of the last turn again."""

    turn_id: str


class TurnReceipt(Record):
    """An accepted input that runs a turn. `first` is False for a repeat of an input that is known already."""

    session_uid: str
    turn_id: str
    message_id: str
    user_message_id: str | None = None
    attempt: int = 1
    first: bool = True


class SteerReceipt(Record):
    """`queued`: it joins the live turn or waits behind a pending action. `promoted`: `turn_id` is the turn of its own."""

    steering_id: str
    delivery: Literal["queued", "promoted"]
    session_uid: str = ""
    turn_id: str | None = None


class CardReceipt(Record):
    """A card that is in the rows. `revision` is the session's after it."""

    session_uid: str
    message_id: str
    revision: int


class AmendReceipt(Record):
    """A change that is in the rows."""

    session_uid: str
    revision: int


class CloseReceipt(Record):
    """The rows are gone. `erasure_id` names the workflow that removes histories and payloads."""

    session_uid: str
    erasure_id: str


class CancelReceipt(Record):
    """`turn_id` is the turn that is being cancelled, None if nothing ran."""

    cancel_requested: bool
    turn_id: str | None = None


class RepairReceipt(Record):
    """What a repair did: the call that was pending and every call that became `unknown`."""

    cleared_pending: str | None = None
    repaired_calls: tuple[str, ...] = ()


class RecordedRefusal(Record):
    """A signal that an update would have refused."""

    what: str
    code: str
    message: str
    at: str


class SessionStart(Record):
    """The argument of a session's workflow. `carried` is the state of the run before, as JSON text; empty at a first run."""

    tenant: str
    session_id: str
    carried: str = ""
