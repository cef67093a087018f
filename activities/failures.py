"""The one translator from what goes wrong with a model to how a turn fails. No secret, no request and no traceback gets into a message."""

import re
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)

from workflows.contracts.errors import SetupError, TurnFault
from workflows.model.turn import ErrorType, TurnError

_OVERFLOW = re.compile(r"exceed.{0,20}context|context.{0,20}exceed", re.I | re.S)
_TOO_LARGE = 413
_REQUEST_TIMEOUT = 408
_CONFLICT = 409
_SERVER_SIDE = 500


@dataclass(frozen=True)
class ProviderFailure:
    """How a turn fails, whether the same request may be sent `again`, and the seconds that the provider asked us to wait."""

    error: TurnError
    again: bool = False
    retry_after: float | None = None


def classify(failure: BaseException) -> ProviderFailure:
    """What an exception out of a model request means. Anything unknown is `internal` and not asked for again."""
    if isinstance(failure, TurnFault):
        return ProviderFailure(failure.error)
    if isinstance(failure, SetupError):
        return ProviderFailure(TurnError.of("setup_error", _one_line(str(failure))))
    if isinstance(failure, ModelAPIError):
        return _of_provider(failure)
    if isinstance(failure, UsageLimitExceeded):
        return ProviderFailure(TurnError.of("usage_limit", _one_line(str(failure))))
    if isinstance(failure, UnexpectedModelBehavior):
        return ProviderFailure(TurnError.of("provider_error", "the provider's answer was empty or could not be understood"), again=True)
    if isinstance(failure, UserError | ImportError):
        return ProviderFailure(TurnError.of("setup_error", _one_line(str(failure))))
    what = "a value could not be validated" if isinstance(failure, ValidationError) else type(failure).__name__
    return ProviderFailure(TurnError.of("internal", f"internal error ({what})"))


def _of_provider(failure: ModelAPIError) -> ProviderFailure:
    status = failure.status_code if isinstance(failure, ModelHTTPError) else None
    kind, words, again = _kind(failure, status)
    seen = f" (HTTP {status})" if status is not None else ""
    return ProviderFailure(TurnError.of(kind, f"{words}{seen}"), again, failure.retry_after if again else None)


def _kind(failure: ModelAPIError, status: int | None) -> tuple[ErrorType, str, bool]:
    """Type, words, and whether to ask again. The order matters: the categories are not disjoint."""
    if isinstance(failure, ModelContextWindowExceededError) or status == _TOO_LARGE or _OVERFLOW.search(_said(failure)):
        return "context_overflow", "the conversation is longer than the model can read", False
    if isinstance(failure, ModelAuthenticationError):
        return "provider_auth", "the provider refused the key", False
    if isinstance(failure, ModelQuotaExceededError):
        return "provider_client_error", "the provider's quota is used up", False
    if isinstance(failure, ModelRateLimitError):
        return "rate_limit", "the provider's rate limit was reached", True
    if isinstance(failure, ModelTimeoutError | ModelRequestTimeout) or status == _REQUEST_TIMEOUT:
        return "timeout", "the provider did not answer in time", True
    if isinstance(failure, ModelConnectionError):
        return "connection_error", "the connection to the provider failed", True
    if isinstance(failure, ModelRequestRejectedError):
        return "provider_client_error", "the provider rejected the request", False
    if status is not None and status < _SERVER_SIDE and not failure.in_stream:
        return "provider_client_error", "the provider rejected the request", status == _CONFLICT
    return "provider_error", "the provider failed", True


def _said(failure: ModelAPIError) -> str:
    return f"{failure.message} {getattr(failure, 'body', '')}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:500]
