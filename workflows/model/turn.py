"""A turn, what it cost, and how it failed."""

from typing import Literal

from workflows.model.base import Record
from workflows.model.call import OpenCall

TurnKind = Literal["message", "continuation", "steering"]
TurnState = Literal["running", "completed", "waiting", "failed", "cancelled"]
ErrorType = Literal[
    "rate_limit",
    "provider_error",
    "connection_error",
    "timeout",
    "provider_auth",
    "provider_client_error",
    "context_overflow",
    "usage_limit",
    "empty_response",
    "cancelled",
    "session_error",
    "setup_error",
    "internal",
]

RETRYABLE: frozenset[str] = frozenset(
    ("rate_limit", "provider_error", "connection_error", "timeout", "provider_auth", "setup_error", "empty_response", "internal")
)


class TurnError(Record):
    """How a turn failed. `retry_allowed` says whether running the failed step again makes sense."""

    type: ErrorType
    message: str
    retry_allowed: bool = False

    @classmethod
    def of(cls, type: ErrorType, message: str) -> "TurnError":
        """The error with the `retry_allowed` that its type implies."""
        return cls(type=type, message=message, retry_allowed=type in RETRYABLE)


CANCELLED = TurnError.of("cancelled", "the turn was cancelled")
TIMED_OUT = TurnError.of("timeout", "the turn took longer than it may")
TOO_LONG = TurnError.of(
    "usage_limit", "the turn did so much that its history takes no more; all of it is kept, and a message goes on from it"
)


class Usage(Record):
    """Tokens, model requests, server and host tool calls, and cost in US dollars as a decimal string (None: not priced)."""

    input_tokens: int = 0
    output_tokens: int = 0
    requests: int = 0
    tool_calls: int = 0
    cost_usd: str | None = None

    @property
    def total_tokens(self) -> int:
        """Input plus output tokens."""
        return self.input_tokens + self.output_tokens


class TurnConfig(Record):
    """What a message may ask of its turn. None means: as the profile and the settings say."""

    model: str | None = None
    max_steps: int | None = None
    temperature: float | None = None
    handover: Literal["one", "all"] | None = None
    budget: dict[str, float] | None = None


class TurnRef(Record):
    """One attempt of one turn. `message_id` is the assistant message that it writes; `parent_id` what that message hangs under."""

    turn_id: str
    number: int
    attempt: int = 1
    kind: TurnKind = "message"
    message_id: str
    user_message_id: str | None = None
    parent_id: str | None = None
    accepted_at: str


class TurnOutcome(Record):
    """How a turn ended. `host_calls` are open if it `paused`. `next_step` is the step that a retry runs, `passed_over` the profile of
    steering that it could not take. `refused_code` and `refused_why` are the refusal, where the rows `refused` its input.
    """

    turn: TurnRef
    state: str
    next_step: int = 1
    host_calls: tuple[OpenCall, ...] = ()
    handover: str = "one"
    error: TurnError | None = None
    at: str = ""
    expires_at: str = ""
    passed_over: str = ""
    refused_code: str = ""
    refused_why: str = ""
