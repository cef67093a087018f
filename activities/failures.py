"""The one translator from what goes wrong with a model to how a turn fails. No secret, no request and no traceback gets into a message."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelAuthenticationError,
    ModelConnectionError,
    ModelContextWindowExceededError,
    ModelHTTPError,
    ModelNotFoundError,
    ModelQuotaExceededError,
    ModelRateLimitError,
    ModelRequestRejectedError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)

from workflows.contracts import policies
from workflows.contracts.errors import SetupError, TurnFault
from workflows.model.turn import ErrorType, TurnError

_log = logging.getLogger(__name__)

_OVERFLOW = re.compile(r"exceed.{0,20}context", re.I | re.S)
_CONFLICT = 409


@dataclass(frozen=True)
class ProviderFailure:
    """How a turn fails, whether the same request may be sent `again`, and the seconds that the provider asked us to wait."""

    error: TurnError
    again: bool = False
    retry_after: float | None = None

    def delay(self, failures: int, first: float) -> float:
        """Seconds to the next attempt after so many: what the provider asks for, within its cap, else our own, which was `first`."""
        if self.retry_after is not None:
            return min(self.retry_after, policies.RETRY_AFTER_CAP_SECONDS)
        return first * policies.PROVIDER_BACKOFF ** (failures - 1)


_Test = Callable[[ModelAPIError, int | None], bool]


def _is(*categories: type[ModelAPIError], status: int | None = None) -> _Test:
    return lambda failure, seen: isinstance(failure, categories) or (seen is not None and seen == status)


_TABLE: tuple[tuple[_Test, ErrorType, str, bool], ...] = (
    (_is(ModelContextWindowExceededError, status=413), "context_overflow", "the conversation is longer than the model can read", False),
    (lambda failure, _: _overflows(failure), "context_overflow", "the conversation is longer than the model can read", False),
    (_is(ModelAuthenticationError, status=401), "provider_auth", "the provider refused the key", False),
    (_is(ModelQuotaExceededError), "provider_client_error", "the provider's quota is used up", False),
    (_is(ModelRateLimitError, status=429), "rate_limit", "the provider's rate limit was reached", True),
    (_is(ModelTimeoutError, ModelRequestTimeout, status=408), "timeout", "the provider did not answer in time", True),
    (_is(ModelConnectionError), "connection_error", "the connection to the provider failed", True),
    (_is(ModelNotFoundError), "provider_client_error", "the provider has no such model", False),
    (_is(ModelRequestRejectedError), "provider_client_error", "the provider rejected the request", False),
    (lambda _, seen: seen == _CONFLICT, "provider_client_error", "the provider rejected the request for now", True),
    (lambda _, seen: seen is not None and 400 <= seen < 500, "provider_client_error", "the provider rejected the request", False),
    (_is(ModelAPIError), "provider_error", "the provider failed", True),
)
"""Type, words, and whether the same request may be sent again. The order matters: the categories are not disjoint."""


def classify(failure: BaseException) -> ProviderFailure:
    """What an exception out of a model request means. Anything unknown is `internal` and not asked for again."""
    match failure:
        case TurnFault():
            return ProviderFailure(failure.error)
        case ModelAPIError():
            return _of_provider(failure)
        case UnexpectedModelBehavior():
            return ProviderFailure(TurnError.of("provider_error", "the provider's answer was empty or could not be understood"), again=True)
        case UsageLimitExceeded():
            return ProviderFailure(TurnError.of("usage_limit", _one_line(failure)))
        case SetupError() | UserError() | ImportError():
            return ProviderFailure(TurnError.of("setup_error", _one_line(failure)))
        case _:
            return ProviderFailure(TurnError.of("internal", f"internal error ({type(failure).__name__})"))


def reported(failure: Exception) -> ProviderFailure:
    """The same, and the log says so; of what nobody expected with the place where it was raised."""
    found = classify(failure)
    unexpected = found.error.type == "internal"
    _log.warning("a model request failed: %s", found.error.type, exc_info=failure if unexpected else None)
    return found


def _of_provider(failure: ModelAPIError) -> ProviderFailure:
    status = failure.status_code if isinstance(failure, ModelHTTPError) else None
    kind, words, again = next((kind, words, again) for test, kind, words, again in _TABLE if test(failure, status))
    seen = f" (HTTP {status})" if status is not None else ""
    return ProviderFailure(TurnError.of(kind, words + seen), again, failure.retry_after if again else None)


def _overflows(failure: ModelAPIError) -> bool:
    return _OVERFLOW.search(f"{failure.message} {failure.body or ''}") is not None


def _one_line(failure: BaseException) -> str:
    return " ".join(str(failure).split())[:500]
