"""Every route, and what each kind of caller gets there. A new route needs a row: test_access.py compares this with the app's own routes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Who = Literal["nobody", "owner", "other", "namesake", "admin", "foreign admin", "service", "service for owner", "service for other"]

CALLERS: tuple[Who, ...] = (
    "nobody",
    "owner",
    "other",
    "namesake",
    "admin",
    "foreign admin",
    "service",
    "service for owner",
    "service for other",
)
"""`namesake` is the owner's name in another tenant, `service` a service that speaks for nobody but itself."""

TRUSTED: frozenset[Who] = frozenset({"owner", "admin", "service for owner"})
ELSEWHERE: frozenset[Who] = frozenset({"namesake", "foreign admin"})

Kind = Literal["own", "births", "list", "open"]


@dataclass(frozen=True)
class Row:
    """`own`: of a session that exists for TRUSTED callers only. `births`: the same, but an absent id makes a session. `list`: everyone's own.
    `open`: the same for everyone.

    `ok` is what they get. `but` names who gets something else. `body` is sent. `fresh`: the call leaves nothing for the next one.
    """

    route: str
    kind: Kind
    ok: int = 200
    query: str = ""
    body: Any = None
    but: Mapping[Who, int] = field(default_factory=dict)
    fresh: bool = False

    @property
    def method(self) -> str:
        return self.route.partition(" ")[0]

    def path(self, names: Mapping[str, str]) -> str:
        """The path with its ids."""
        return self.route.partition(" ")[2].format(**names) + self.query

    def content(self, names: Mapping[str, str]) -> Any:
        """The body with its session id."""
        return {**self.body, "session_id": names["session_id"]} if self.body and self.route.startswith("POST /api/chat") else self.body

    def expected(self, who: Who, there: bool = True) -> int:
        """The status for a caller, where the session is the owner's, or is not there."""
        if self.kind == "open":
            return self.ok
        if who == "nobody":
            return 401
        if not there and self.kind == "own":
            return 404
        if self.kind == "list" or not there:
            return self.but.get(who, self.ok)
        if who in self.but:
            return self.but[who]
        return self.ok if who in TRUSTED or (self.kind == "births" and who in ELSEWHERE) else 404


NO_ADMINS = {who: 403 for who in CALLERS if "admin" not in who}
SESSION = "/api/sessions/{session_id}"
CARD = {"content": "hi", "segments": [{"kind": "component", "type": "note", "data": 1}]}

TABLE = (
    Row("GET /health", "open"),
    Row("GET /health/ready", "open"),
    Row("GET /metrics", "open"),
    Row("GET /docs", "open"),
    Row("GET /openapi.json", "open"),
    Row("GET /api/sessions", "list"),
    Row("GET /api/host-actions", "list"),
    Row("POST /codec/decode", "list", body={"payloads": []}, but=NO_ADMINS),
    Row("POST /codec/download", "list", body={"payloads": []}, but=NO_ADMINS),
    Row("POST /codec/encode", "list", body={"payloads": []}, but=NO_ADMINS),
    Row(f"GET {SESSION}", "own"),
    Row(f"GET {SESSION}/messages", "own"),
    Row(f"GET {SESSION}/messages/{{message_id}}", "own"),
    Row(f"GET {SESSION}/messages/{{message_id}}/prompt", "own"),
    Row(f"GET {SESSION}/tree", "own"),
    Row(f"GET {SESSION}/transcript", "own"),
    Row(f"GET {SESSION}/transcript", "own", query="?index=0&speaker=user"),
    Row(f"GET {SESSION}/export", "own"),
    Row(f"GET {SESSION}/export", "own", query="?format=openai"),
    Row(f"GET {SESSION}/changes", "own"),
    Row(f"GET {SESSION}/events", "own", query="?until=turn"),
    Row("GET /api/erasures/{erasure_id}", "own"),
    Row("GET /api/search/sessions", "list", query="?q=hello"),
    Row("GET /api/metrics/sessions", "list"),
    Row("GET /api/metrics/sessions/{session_id}", "own", but={"admin": 404}),
    Row(f"POST {SESSION}/stream-ticket", "own"),
    Row("POST /api/chat", "births", 202, "?wait=false", {"content": "hello", "when_busy": "enqueue"}),
    Row("POST /api/chat/stream", "births", 200, "", {"content": "hello", "when_busy": "enqueue"}),
    Row(f"POST {SESSION}/messages", "births", 201, "", CARD),
    Row(f"POST {SESSION}/turns/{{turn_id}}/retry", "own", 409),
    # what a good token does for whom is in test_resume.py
    Row("POST /api/resume/{pause_token}", "open", 401, body={"tool_result": 1}),
    Row(f"POST {SESSION}/cancel", "own"),
    Row(f"POST {SESSION}/repair", "own"),
    Row(f"PATCH {SESSION}", "own", 200, "", {"owner_id": "alice"}, but={"owner": 403, "service for owner": 403}),
    Row(f"PATCH {SESSION}", "own", 200, "", {"title": "t"}),
    Row(f"DELETE {SESSION}", "own", 202, fresh=True),
)
