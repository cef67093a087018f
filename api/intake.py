"""What a request body must be before anything reads it: JSON, of bounded size, with text that every part of the system can keep."""

import asyncio
import json
import re
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from api.access import identify
from api.errors import RequestRefused

LARGE_BODY = 256 * 1024
"""Bytes from which on a body is read by a thread: requests beside it must not wait for that."""

MAX_DEPTH = 100
"""Levels of nesting that a body may have."""

_SURROGATE = re.compile("[\ud800-\udfff]")


class StrictRequest(Request):
    """A request whose body was read and checked."""

    def take(self, body: bytes, value: Any) -> None:
        """Keeps the checked body for `body()` and `json()`."""
        self._body = body
        self._json = value


class StrictRoute(APIRoute):
    """A route that refuses bad bodies: 413 over `OUTLAST_API__MAX_BODY_BYTES`, 415 for another content type, 422 for what is not clean JSON.

    A body is not read before it is known who sends it, where the route asks that.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        takes_body = self.body_field is not None
        identifies = _depends_on(self.dependant, identify)

        async def checked(request: Request) -> Response:
            if takes_body:
                if identifies:
                    await identify(request)
                request = StrictRequest(request.scope, request.receive)
                body = await _bounded(request)
                if body:
                    _expect_json(request)
                request.take(body, await _parsed(body) if body else None)
            return await handle(request)

        return checked


def _depends_on(dependant: Dependant, call: Callable[..., Any]) -> bool:
    return dependant.call is call or any(_depends_on(inner, call) for inner in dependant.dependencies)


def parse(body: bytes) -> Any:
    """The JSON value that `body` writes.

    Raises RequestRefused (422) for anything that isn't JSON in UTF-8, numbers that no float holds, nesting over `MAX_DEPTH`, NUL
    characters and lone surrogates: no later part could keep them.
    """
    try:
        value = json.loads(body.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise RequestRefused(422, "the body is not valid JSON in UTF-8") from error
    _check(value)
    return value


async def _parsed(body: bytes) -> Any:
    return await asyncio.to_thread(parse, body) if len(body) > LARGE_BODY else parse(body)


async def _bounded(request: Request) -> bytes:
    most: int = request.app.state.settings.api.max_body_bytes
    too_large = RequestRefused(413, f"the body is over {most} bytes (OUTLAST_API__MAX_BODY_BYTES)")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise too_large
    chunks = bytearray()
    try:
        async for chunk in request.stream():
            chunks += chunk
            if len(chunks) > most:
                raise too_large
    except ClientDisconnect:  # nobody reads the answer; it keeps a client's habit from being logged as our fault
        raise RequestRefused(400, "the client left before its body was complete", "incomplete_body") from None
    return bytes(chunks)


def _expect_json(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise RequestRefused(415, "the body must be of content type application/json")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{text} is too large a number")
    return value


def _check(value: Any) -> None:
    left = [(value, 0)]
    while left:
        item, depth = left.pop()
        if isinstance(item, str):
            if "\0" in item or _SURROGATE.search(item):
                raise RequestRefused(422, "text must not contain NUL characters or lone surrogates")
        elif isinstance(item, dict | list):
            if depth == MAX_DEPTH:
                raise RequestRefused(422, f"the body nests deeper than {MAX_DEPTH} levels")
            inner = [*item.keys(), *item.values()] if isinstance(item, dict) else item
            left += [(each, depth + 1) for each in inner]
