"""The one error tree. A refusal is what a caller did wrong or too late; everything else is a fault of ours or of a service.

Every process has it, also those that know nothing of Temporal, whose SDK is imported only where a failure of its kind is made.
"""

from typing import TYPE_CHECKING, Any, Literal, get_args

from workflows.model.turn import TurnError

if TYPE_CHECKING:
    from temporalio.exceptions import ApplicationError

RefusalCode = Literal[
    "not_found",
    "already_recorded",
    "not_pending",
    "call_mismatch",
    "duplicate_id",
    "unknown_parent",
    "binding_conflict",
    "busy",
    "not_retryable",
    "conversation_conflict",
    "unknown_profile",
    "bad_request",
    "usage_limit",
    "forbidden",
    "closed",
    "rolling",
    "internal",
]

REFUSAL = "Refusal"
"""The `ApplicationError.type` of every refusal; its details are (code, message, facts)."""

STILL_THERE = "StillThere"
"""The `ApplicationError.type` of an erasure's look that found something left: no fault, the next look may find nothing."""


class OutlastError(Exception):
    """The root of every error that Outlast raises itself."""


class Refusal(OutlastError):
    """An input that does not fit. Nothing happened.

    `code` is a stable word, `message` says what is wrong and what to do, `facts` are members of the problem body.
    """

    def __init__(self, code: RefusalCode, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.code: RefusalCode = code
        self.message = message
        self.facts = facts

    def as_failure(self) -> "ApplicationError":
        """The same refusal in the form that an update handler may raise."""
        from temporalio.exceptions import ApplicationError

        return ApplicationError(self.message, self.code, self.facts, type=REFUSAL, non_retryable=True)

    @classmethod
    def named(cls, code: str, message: str) -> "Refusal":
        """A refusal that an activity came to; a code that this release does not know is `internal`."""
        known: RefusalCode = next((known for known in get_args(RefusalCode) if known == code), "internal")
        return cls(known, message)

    @classmethod
    def from_failure(cls, failure: "ApplicationError") -> "Refusal":
        """Reads `as_failure` back on the client's side."""
        code, facts = failure.details[0], failure.details[1]
        return cls(code, failure.message, **facts)


class SetupError(OutlastError):
    """The process can't start as it is configured. One line says why; the exit code is 1."""


UnavailableCause = Literal["unreachable", "auth_refused", "database_missing", "behind", "privilege_missing"]


class DatabaseUnavailableError(SetupError):
    """Postgres can't be used at start. `cause` says why in one word (R1–R8)."""

    def __init__(self, cause: UnavailableCause, message: str) -> None:
        super().__init__(message)
        self.cause: UnavailableCause = cause


class MigrationError(SetupError):
    """A migration failed and the schema is as it was before (R9)."""

    cause: Literal["migration_failed"] = "migration_failed"


class TurnFault(OutlastError):
    """Something that ends a turn with the error that it carries."""

    def __init__(self, error: TurnError) -> None:
        super().__init__(error.message)
        self.error = error


class ServiceUnavailable(OutlastError):
    """Postgres, Temporal or the bucket for large payloads was lost after the start. The next call tries again (R15)."""

    def __init__(self, service: Literal["database", "temporal", "payloads"], message: str, *, maybe_happened: bool = False) -> None:
        super().__init__(message)
        self.service: Literal["database", "temporal", "payloads"] = service
        self.maybe_happened = maybe_happened


def words_of(error: BaseException) -> str:
    """An error in one line, for people: what one of ours says, and of any other the name of its class too, which often says more."""
    said = " ".join(str(error).split())
    if isinstance(error, OutlastError) and said:
        return said
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
