"""The one mapper from errors to answers: `application/problem+json` with a stable `code`, never a traceback."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import iter_route_contexts
from starlette.exceptions import HTTPException

from workflows.contracts.errors import OutlastError, Refusal, RefusalCode, ServiceUnavailable

RETRY_AFTER_SECONDS = 2
"""What a 503 asks the client to wait."""

_REFUSALS: dict[RefusalCode, int] = {
    "not_found": 404,
    "already_recorded": 409,
    "not_pending": 409,
    "call_mismatch": 409,
    "duplicate_id": 409,
    "unknown_parent": 409,
    "binding_conflict": 409,
    "busy": 409,
    "not_retryable": 409,
    "conversation_conflict": 409,
    "unknown_profile": 422,
    "bad_request": 422,
    "usage_limit": 429,
    "forbidden": 403,
    "closed": 409,
    "rolling": 503,
    "internal": 500,
}

_CODES = {
    400: "bad_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    410: "gone",
    413: "too_large",
    415: "unsupported_media_type",
    422: "bad_request",
    429: "rate_limited",
}


class RequestRefused(OutlastError):
    """A request that is wrong by itself, whatever the session's state. `detail` is one sentence."""

    def __init__(self, status: int, detail: str, code: str | None = None, *, headers: dict[str, str] | None = None, **facts: Any) -> None:
        super().__init__(detail)
        self.headers = headers
        self.status = status
        self.code = code or _CODES[status]
        self.detail = detail
        self.facts = facts


class ProblemResponse(JSONResponse):
    """A JSON answer of the media type that RFC 9457 gives to errors."""

    media_type = "application/problem+json"


def problem(status: int, code: str, detail: str, *, headers: dict[str, str] | None = None, **facts: Any) -> ProblemResponse:
    """An error answer. `code` is a stable word, `facts` are further members."""
    body = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail, "code": code, **facts}
    return ProblemResponse(body, status, headers)


def not_found(what: str = "session") -> Refusal:
    """The refusal for what is absent or foreign: both look the same (R38)."""
    return Refusal("not_found", f"there is no such {what}")


def install(app: FastAPI) -> None:
    """Makes `app` answer every error as a problem."""
    app.add_exception_handler(Refusal, _refusal)
    app.add_exception_handler(RequestRefused, _request_refused)
    app.add_exception_handler(ServiceUnavailable, _unavailable)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _unexpected)


def unavailable(error: ServiceUnavailable) -> ProblemResponse:
    """503 for a service that was lost after the start (R15)."""
    detail = str(error)
    if error.maybe_happened:
        detail += "; it may happen nevertheless: send it again with the same id to make sure that it happens once"
    return problem(
        503, f"{error.service}_unavailable", detail, headers={"Retry-After": str(RETRY_AFTER_SECONDS)}, maybe_happened=error.maybe_happened
    )


async def _refusal(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, Refusal)
    if error.code == "internal":
        return await _unexpected(request, error)
    headers = {"Retry-After": str(error.facts["retry_after"])} if "retry_after" in error.facts else None
    return problem(_REFUSALS[error.code], error.code, error.message, headers=headers, **error.facts)


async def _request_refused(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestRefused)
    return problem(error.status, error.code, error.detail, headers=error.headers, **error.facts)


async def _unavailable(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, ServiceUnavailable)
    return unavailable(error)


async def _invalid(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, RequestValidationError)
    errors = [{"where": _where(item["loc"]), "what": _what(item)} for item in error.errors()]
    first = errors[0]
    detail = f"{first['where']}: {first['what']}" if first["where"] else first["what"]
    return problem(422, "bad_request", detail, errors=errors)


async def _http(request: Request, error: Exception) -> ProblemResponse:
    assert isinstance(error, HTTPException)
    code = _CODES.get(error.status_code, "http_error")
    details = {404: f"there is nothing at {request.url.path}", 405: f"{request.method} is not possible at {request.url.path}"}
    headers = {"Allow": _methods(request)} if error.status_code == 405 else dict(error.headers) if error.headers else None
    return problem(error.status_code, code, details.get(error.status_code, str(error.detail)), headers=headers)


def _methods(request: Request) -> str:
    """Every method of a path: each is a route of its own, and the one that was found first would name only its own."""
    at = [route for route in iter_route_contexts(request.app.routes) if route.methods and route.path_regex.match(request.url.path)]
    return ", ".join(sorted({method for route in at for method in route.methods or ()}))


async def _unexpected(request: Request, error: Exception) -> ProblemResponse:
    """The server logs the traceback; the client gets none."""
    return problem(500, "internal", "an unexpected error happened here; the log of this process has it")


def _where(location: Sequence[int | str]) -> str:
    """`("body", "view", 0, "name")` as `view.0.name`."""
    return ".".join(str(part) for part in location[1:])


def _what(item: dict[str, Any]) -> str:
    if item["type"] == "extra_forbidden":
        return "there is no such field"
    if item["type"] == "missing" and len(item["loc"]) == 1:
        return "a JSON body is needed"
    return str(item["msg"]).removeprefix("Value error, ")
