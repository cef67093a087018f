"""The HTTP side: one turn's events, each exactly once, over lost connections and restarts of the API."""

import json
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
from httpx_sse import SSEError, connect_sse

from workflows.contracts.errors import OutlastError, SetupError

SILENCE_SECONDS = 60.0
"""An open stream carries a comment every 15 s; one that is silent for this long is dead."""

LOST_SECONDS = 120.0
"""How long to look for an API that is gone before giving up."""

_AGAIN = (502, 503, 504)


class ApiProblem(OutlastError):
    """What the API said no to. `code` is its stable word."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{detail} ({code})")
        self.status = status
        self.code = code


class ApiLost(OutlastError):
    """The API can't be reached."""


class _Cut(OutlastError):
    """The stream ended before its turn did, or did not begin; another try may help."""


@dataclass(frozen=True)
class Event:
    """One event of a stream (docs/http-api.md)."""

    type: str
    data: dict[str, Any]


class ApiClient:
    """An API at `url`, which is given `token`. `notice` is told, in one line, when the connection is lost and when it is back."""

    def __init__(self, url: str, notice: Callable[[str], None], token: str | None = None) -> None:
        """Raises SetupError for a URL or a token that can't be one."""
        if token and not (token.isascii() and token.isprintable()):
            raise SetupError("the token has characters that no header takes")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._http = httpx.Client(base_url=url.rstrip("/"), timeout=httpx.Timeout(SILENCE_SECONDS, connect=5.0), headers=headers)
        except httpx.InvalidURL as error:
            raise SetupError(f"{url} is no URL of an API: {error}") from error
        if self._http.base_url.scheme not in ("http", "https") or not self._http.base_url.host:
            raise SetupError(f"{url} is no URL of an API, such as http://127.0.0.1:8080")
        self._notice = notice

    def reach(self) -> None:
        """Returns if anything answers. Raises ApiLost."""
        self._response("GET", "/health")

    def get(self, path: str, **params: Any) -> dict[str, Any]:
        """A read. Raises ApiProblem and ApiLost."""
        return self._request("GET", path, params=params)

    def close(self) -> None:
        """Lets go of the connection."""
        self._http.close()

    def cancel(self, session_id: str, turn_id: str) -> None:
        """Cancels a turn. Raises ApiProblem and ApiLost."""
        self._request("POST", f"{place_of(session_id)}/cancel", json={"turn_id": turn_id})

    def message(self, session_id: str, content: str, profile: str | None) -> "TurnStream":
        """A message's turn."""
        body: dict[str, Any] = {"session_id": session_id, "id": new_id(), "content": content}
        return TurnStream(self, session_id, body if profile is None else {**body, "profile": profile})

    def answer(self, session_id: str, call_id: str, result: Any, outcome: str) -> "TurnStream":
        """The turn that goes on with a host's result."""
        body = {"session_id": session_id, "tool_call_id": call_id, "tool_result": result, "tool_outcome": outcome}
        return TurnStream(self, session_id, body)

    def watch(self, session_id: str, turn_id: str) -> "TurnStream":
        """A turn that somebody else began."""
        return TurnStream(self, session_id, None, turn_id)

    def _request(self, method: str, path: str, **arguments: Any) -> dict[str, Any]:
        response = self._response(method, path, **arguments)
        if not response.is_success:
            raise problem_of(response)
        try:
            answer: dict[str, Any] = response.json()
        except ValueError as error:
            raise ApiLost(f"what answers at {self._http.base_url} is no API of Outlast") from error
        return answer

    def _response(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        try:
            return self._http.request(method, path, **arguments)
        except httpx.TransportError as error:
            raise ApiLost(f"no API at {self._http.base_url}: {error}; start `outlast dev`, or name another one with --url") from error


class TurnStream:
    """The events of one turn. The turn's id is chosen here, so that its stream is found again however little was heard of it."""

    def __init__(self, client: ApiClient, session_id: str, body: dict[str, Any] | None, turn_id: str | None = None) -> None:
        self.session_id = session_id
        self.turn_id = turn_id or new_id()
        self._client = client
        self._body = body and {**body, "turn_id": self.turn_id}
        self._sent = body is None
        self._tried = False
        self._cursor = f"before:{self.turn_id}"
        self._ended = False

    def events(self) -> Iterator[Event]:
        """Every event of the turn, once and in order, to `turn.completed`. Can be called again after an interruption.

        Raises ApiProblem if the input was refused, ApiLost if the API stays away for two minutes.
        """
        lost_since: float | None = None
        while not self._ended:
            try:
                for event in self._connection():
                    if lost_since is not None:
                        self._client._notice("connected again")
                        lost_since = None
                    yield event
            except (_Cut, httpx.TransportError, SSEError) as error:
                if lost_since is None:
                    lost_since = time.monotonic()
                    self._client._notice("connection lost, trying again")
                if time.monotonic() - lost_since > LOST_SECONDS:
                    raise ApiLost(f"no API at {self._client._http.base_url}: {error}") from error
                time.sleep(0.5)

    def _connection(self) -> Iterator[Event]:
        """The events of one connection. Raises _Cut if it ends before the turn."""
        for sse in self._sent_stream() if self._sent else self._first_stream():
            self._sent = True
            if not sse.event or sse.event == "message":
                continue
            self._cursor = sse.id or self._cursor
            event = Event(sse.event, json.loads(sse.data))
            if event.type == "input.refused" and event.data.get("refused_turn_id") == self.turn_id:
                raise ApiProblem(409, str(event.data["code"]), str(event.data["message"]))
            if event.data.get("turn_id") not in (None, self.turn_id):
                continue
            self._ended = event.type == "turn.completed"
            yield event
            if self._ended:
                return
        raise _Cut("the stream ended")

    def _first_stream(self) -> Iterator[Any]:
        """Sends the input. One that was sent before, with no answer heard, may have been recorded: then its turn is read instead."""
        again, self._tried = self._tried, True
        try:
            yield from self._open("POST", "/api/chat/stream", json=self._body)
        except ApiProblem as problem:
            if not (again and problem.code in ("already_recorded", "duplicate_id")):
                raise
            yield from self._sent_stream()

    def _sent_stream(self) -> Iterator[Any]:
        path = f"{place_of(self.session_id)}/events"
        yield from self._open("GET", path, params={"after": self._cursor, "until": "turn"})

    def _open(self, method: str, path: str, **arguments: Any) -> Iterator[Any]:
        with connect_sse(self._client._http, method, path, **arguments) as source:
            if source.response.status_code in _AGAIN:
                raise _Cut(f"HTTP {source.response.status_code}")
            if source.response.is_error:
                source.response.read()
                raise problem_of(source.response)
            yield from source.iter_sse()


def problem_of(response: httpx.Response) -> ApiProblem:
    """What a response that says no says."""
    try:
        body = response.json()
        return ApiProblem(response.status_code, str(body["code"]), str(body["detail"]))
    except (ValueError, KeyError, TypeError):
        return ApiProblem(response.status_code, f"http_{response.status_code}", response.text[:200] or response.reason_phrase)


def place_of(session_id: str) -> str:
    """The path of a session, whatever was typed as its id."""
    return f"/api/sessions/{quote(session_id, safe='')}"


def new_id() -> str:
    """An id that nobody else has."""
    return str(uuid.uuid4())
