"""sessions.md, Failure inside a turn: what an exception out of a model request means. tests/io does the same over real HTTP."""

import pytest
from pydantic_ai.exceptions import (
    ModelAPIError,
    ModelConnectionError,
    ModelHTTPError,
    ModelRateLimitError,
    ModelRequestTimeout,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UsageLimitExceeded,
    UserError,
)

from activities.failures import classify
from workflows.contracts.errors import SetupError, TurnFault
from workflows.model.turn import TurnError


@pytest.mark.parametrize(
    ("failure", "kind", "again"),
    [
        (ModelConnectionError("m", "gone", phase="read"), "connection_error", True),
        (ModelTimeoutError("m", "slow", phase="read"), "timeout", True),
        (ModelRequestTimeout("m", timeout=3, setting="request_timeout"), "timeout", True),
        (ModelAPIError("m", "bad JSON"), "provider_error", True),
        (ModelAPIError("m", "the input exceeds the context window"), "context_overflow", False),
        (ModelAPIError("m", "context deadline exceeded"), "provider_error", True),
        (ModelHTTPError(401, "m"), "provider_auth", False),
        (ModelHTTPError(429, "m"), "rate_limit", True),
        (ModelHTTPError(409, "m"), "provider_client_error", True),
        (ModelHTTPError(418, "m"), "provider_client_error", False),
        (ModelHTTPError(520, "m"), "provider_error", True),
        (UnexpectedModelBehavior("nothing came"), "provider_error", True),
        (UsageLimitExceeded("too many tokens"), "usage_limit", False),
        (UserError("Set the `X_API_KEY`"), "setup_error", False),
        (ImportError("no package"), "setup_error", False),
        (SetupError("profile 'x'"), "setup_error", False),
        (TurnFault(TurnError.of("session_error", "unreadable")), "session_error", False),
        (RuntimeError("secret"), "internal", False),
    ],
)
def test_r89_each_failure_has_one_meaning(failure: Exception, kind: str, again: bool) -> None:
    meaning = classify(failure)
    assert (meaning.error.type, meaning.again) == (kind, again)


def test_r89_retry_after_is_handed_on_only_where_asking_again_makes_sense() -> None:
    limited = ModelHTTPError.for_category(ModelRateLimitError, status_code=429, model_name="m", headers={"retry-after": "7"})
    assert classify(limited).retry_after == 7
    assert classify(ModelHTTPError(418, "m", headers={"retry-after": "7"})).retry_after is None


@pytest.mark.parametrize(
    "failure", [RuntimeError("key sk-123\nline"), ModelHTTPError(500, "m", body={"key": "sk-123"}), ModelAPIError("m", "sk-123")]
)
def test_r89_a_message_has_one_line_and_no_secret(failure: Exception) -> None:
    message = classify(failure).error.message
    assert "sk-123" not in message
    assert "\n" not in message
