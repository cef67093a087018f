"""What a session's workflow knows. Small: it names the conversation, it never holds it."""

from typing import Literal

from pydantic import Field

from workflows.model.base import Record
from workflows.model.call import OpenCall
from workflows.model.turn import TurnConfig, TurnError, TurnRef


class Batch(Record):
    """The host calls of one response that wait for the host, in model order.

    `calls` are all of them, `answered` the ids with a recorded result, `reminded` those whose reminder went out. `turn` is the turn
    that asked, `step` its step. `since` is when the host was last shown what is pending, `asked_at` when it was first asked for each
    call (ISO 8601).
    """

    message_id: str
    turn: TurnRef
    step: int
    calls: tuple[OpenCall, ...]
    answered: tuple[str, ...] = ()
    handover: Literal["one", "all"] = "one"
    profile: str = ""
    config: TurnConfig | None = None
    since: str = ""
    asked_at: dict[str, str] = Field(default_factory=dict)
    reminded: tuple[str, ...] = ()

    @property
    def open(self) -> tuple[OpenCall, ...]:
        """The calls that still wait, in model order."""
        return tuple(call for call in self.calls if call.call_id not in self.answered)

    @property
    def asked(self) -> tuple[OpenCall, ...]:
        """The calls that the host is asked for now: one, or all of them."""
        return self.open if self.handover == "all" else self.open[:1]

    def shown(self, at: str) -> "Batch":
        """The batch once the host was shown what it is asked for. What it was asked for before keeps its time."""
        asked_at = {**{call.call_id: at for call in self.asked}, **self.asked_at}
        return self.model_copy(update={"since": at, "asked_at": asked_at})

    @property
    def pending(self) -> OpenCall | None:
        """The call that the host is asked for now."""
        return self.open[0] if self.open else None


class Binding(Record):
    """Profile and subject of a session, fixed by its first accepted input. An empty subject binds nothing."""

    profile: str = ""
    subject: str | None = None


class Recent(Record):
    """An accepted input of the recent past: what it said (digest) and what it was answered."""

    digest: str
    turn_id: str
    message_id: str
    user_message_id: str | None = None


class LastTurn(Record):
    """The turn that ended last, for a retry: its next step, and its error if it failed."""

    turn: TurnRef
    next_step: int
    error: TurnError | None = None
    profile: str = ""
    config: TurnConfig | None = None


class Head(Record):
    """Where a session stands. Carried through continue-as-new; a workflow that starts where rows exist loads it from them.

    `revision` is the number of committed changes of tree, leaf and pending action. `default_profile` is the worker's;
    `hung_under` is what the newest user message hangs under; `expires_at` when the session ends if nothing happens (empty: never).
    `indexed` says that the namespace knows Outlast's search attributes, `closing` that the session is being deleted.
    """

    session_uid: str = ""
    owner: str | None = None
    binding: Binding = Binding()
    default_profile: str = ""
    indexed: bool = False
    leaf_id: str | None = None
    hung_under: str | None = None
    revision: int = 0
    turn_number: int = 0
    batch: Batch | None = None
    last_turn: LastTurn | None = None
    expires_at: str = ""
    may_expire: bool = False
    hold_while_pending: bool = False
    closing: bool = False

    @property
    def born(self) -> bool:
        """True once a first input was accepted."""
        return bool(self.session_uid)


class Alarm(Record):
    """Something that is due `at` (ISO 8601): the reminder or the deadline of a call, or the session's expiry."""

    at: str
    what: Literal["reminder", "deadline", "expiry"]
    call_id: str = ""
