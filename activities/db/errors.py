"""The one place that says what an error of the Postgres driver means."""

import asyncpg
from asyncpg.exceptions import OutdatedSchemaCacheError, UnsupportedClientFeatureError, UnsupportedServerFeatureError

from workflows.contracts.errors import ServiceUnavailable, UnavailableCause

DRIVER_ERRORS = (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Everything that an attempt to connect can raise; ValueError is a malformed URL."""

_LOST = (
    OSError,  # refused, reset, no such socket; TimeoutError is one of them
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutdown, crash, starting up, database dropped, statement cancelled
    asyncpg.InsufficientResourcesError,  # too many connections, disk full
    asyncpg.PostgresSystemError,
    asyncpg.ReadOnlySQLTransactionError,  # a fail-over has left us on a standby
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # "cannot switch to state …" is what a call meets whose connection just went
)
_OURS = (
    asyncpg.ClientConfigurationError,
    asyncpg.DataError,
    OutdatedSchemaCacheError,
    UnsupportedClientFeatureError,
    UnsupportedServerFeatureError,
)
_BUSY = "cannot perform operation: another operation"
"""Begins the driver's complaint about two statements at once on one connection: a mistake of ours."""


def is_lost(error: BaseException) -> bool:
    """True if `error` says that Postgres is not there (or not in a state to serve), rather than that a statement was wrong."""
    return isinstance(error, _LOST) and not isinstance(error, _OURS) and _BUSY not in str(error)


def unavailable(error: BaseException, *, maybe_happened: bool = False) -> ServiceUnavailable:
    """What callers see of a lost Postgres after the start (R15). `maybe_happened`: the answer to a commit was lost."""
    return ServiceUnavailable("database", f"Postgres does not answer: {reason(error)}", maybe_happened=maybe_happened)


def refused_because(error: BaseException) -> UnavailableCause:
    """Why a connection could not be made, as the one word of R1, R6, R8 and R13."""
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return "auth_refused"
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return "database_missing"
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return "privilege_missing"
    return "unreachable"


def reason(error: BaseException) -> str:
    """An error in one line. The driver's timeouts have no text of their own."""
    text = " ".join(str(error).split())
    if isinstance(error, TimeoutError) and not text:
        return "timed out"
    return text or type(error).__name__


__all__ = ["DRIVER_ERRORS", "is_lost", "reason", "refused_because", "unavailable"]
