"""Answers. What the rows hold as JSON (final answers, tool values) goes out as it is; these models say what is in it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from activities.db.reads import LiveTurn, PendingAction, SessionDetail, SessionLine, SessionStatus, WaitingCall


class Answer(BaseModel):
    """A part of an answer."""

    model_config = ConfigDict(protected_namespaces=())


class Problem(Answer):
    """An error (RFC 9457). `code` is a stable word; some codes come with further members."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    code: str


class TurnFailure(Answer):
    """How a turn failed."""

    type: str
    message: str
    retry_allowed: bool


class TurnUsage(Answer):
    """What a turn cost. `cost_usd` is a decimal as text, null if the model has no known price."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    requests: int
    tool_calls: int
    cost_usd: str | float | None


PauseToken = Annotated[
    str | None,
    Field(
        description="Answers this call by `POST /api/resume/{pause_token}`. Only where the caller is the session's owner",
        exclude_if=lambda token: token is None,
    ),
]
Tokens = Mapping[str, str]
"""Pause tokens by call id."""

NO_TOKENS: Tokens = {}


class QueuedCall(Answer):
    """A call that is handed over once those before it are answered; one with a token may be answered now."""

    call_id: str
    tool_name: str
    arguments: JsonValue
    pause_token: PauseToken = None

    @classmethod
    def of(cls, call: WaitingCall, tokens: Tokens) -> "QueuedCall":
        """As the rows have it."""
        return cls(call_id=call.call_id, tool_name=call.tool_name, arguments=call.arguments, pause_token=tokens.get(call.call_id))


class PendingToolCall(Answer):
    """The call that the host is asked for."""

    tool_name: str
    call_id: str
    arguments: JsonValue
    queued: list[QueuedCall]
    pause_token: PauseToken = None


class ChatAnswer(Answer):
    """How a turn ended. `content` and `usage` are this turn's."""

    session_id: str
    user_message_id: str | None
    message_id: str
    turn_id: str
    turn_number: int
    attempt: int
    revision: int
    content: str
    model: str | None
    usage: TurnUsage
    pending_tool_call: PendingToolCall | None
    error: TurnFailure | None


class Accepted(Answer):
    """A turn that goes on. `events` is where its stream begins, just before its `turn.started`."""

    session_id: str
    user_message_id: str | None
    message_id: str
    turn_id: str
    events: str


class SteeringAccepted(Answer):
    """Steering that was taken. `promoted`: `turn_id` is the turn of its own."""

    steering_id: str
    delivery: Literal["queued", "promoted"]
    turn_id: str | None


class SessionItem(Answer):
    """A session in the list."""

    session_id: str
    owner_id: str | None
    title: str | None
    status: SessionStatus
    turn_number: int
    message_count: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None

    @classmethod
    def of(cls, line: SessionLine) -> "SessionItem":
        """As the rows have it."""
        return cls(
            session_id=line.session_id,
            owner_id=line.owner,
            title=line.title,
            status=line.status,
            turn_number=line.turn_number,
            message_count=line.message_count,
            created_at=line.created_at,
            updated_at=line.updated_at,
            expires_at=line.expires_at,
        )


class SessionList(Answer):
    """A page of sessions, newest first."""

    sessions: list[SessionItem]
    next_cursor: str | None


class PendingActionView(Answer):
    """What a session waits for."""

    tool_call_id: str
    tool_name: str
    arguments: JsonValue
    assistant_message_id: str
    queued: list[QueuedCall]
    requested_at: datetime
    deadline_at: datetime | None
    pause_token: PauseToken = None

    @classmethod
    def of(cls, pending: PendingAction, tokens: Tokens) -> "PendingActionView":
        """As the rows have it."""
        first, *others = pending.calls
        return cls(
            tool_call_id=first.call_id,
            tool_name=first.tool_name,
            arguments=first.arguments,
            assistant_message_id=pending.message_id,
            queued=[QueuedCall.of(call, tokens) for call in others],
            requested_at=first.requested_at,
            deadline_at=first.deadline_at,
            pause_token=tokens.get(first.call_id),
        )


class LiveTurnView(Answer):
    """The turn that is running."""

    turn_id: str
    turn_number: int
    attempt: int
    kind: str
    message_id: str
    user_message_id: str | None
    started_at: datetime

    @classmethod
    def of(cls, turn: LiveTurn) -> "LiveTurnView":
        """As the rows have it."""
        return cls(
            turn_id=turn.turn_id,
            turn_number=turn.number,
            attempt=turn.attempt,
            kind=turn.kind,
            message_id=turn.message_id,
            user_message_id=turn.user_message_id,
            started_at=turn.started_at,
        )


class SessionView(SessionItem):
    """One session and where it stands."""

    profile: str
    subject: str | None
    active_leaf_id: str | None
    revision: int
    pending_action: PendingActionView | None
    live_turn: LiveTurnView | None

    @classmethod
    def of_detail(cls, detail: SessionDetail, tokens: Tokens = NO_TOKENS) -> "SessionView":
        """As the rows have it."""
        return cls(
            **SessionItem.of(detail).model_dump(),
            profile=detail.profile,
            subject=detail.subject,
            active_leaf_id=detail.active_leaf_id,
            revision=detail.revision,
            pending_action=PendingActionView.of(detail.pending, tokens) if detail.pending else None,
            live_turn=LiveTurnView.of(detail.live_turn) if detail.live_turn else None,
        )


class HostAction(PendingActionView):
    """A pending action in the host's inbox."""

    session_id: str

    @classmethod
    def of_session(cls, pending: PendingAction, tokens: Tokens) -> "HostAction":
        """As the rows have it."""
        return cls(session_id=pending.session_id, **PendingActionView.of(pending, tokens).model_dump())


class HostActionList(Answer):
    """A page of pending actions, oldest first."""

    host_actions: list[HostAction]
    next_cursor: str | None


class StreamTicket(Answer):
    """What opens a session's event stream by its URL alone, until `expires_at`."""

    ticket: str
    expires_at: datetime


class CancelAnswer(Answer):
    """Whether a cancel was needed, and the turn that it ends."""

    cancel_requested: bool
    turn_id: str | None


class RepairAnswer(Answer):
    """What a repair did."""

    session_id: str
    cleared_pending: str | None
    repaired_calls: list[str]


class ErasureBegun(Answer):
    """A session that is gone. What is left of it elsewhere is being removed."""

    erasure_id: str
    status: Literal["running"]
