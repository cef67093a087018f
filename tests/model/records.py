"""What the reference model of a session is made of.

A message of the assistant is named after the turn that made it (`@turn`), since its real id is the runtime's to choose.
"""

from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

DEFAULT = "first"
UNNAMED = "?"
"""What the ids begin with of turns whose real ones the runtime chose."""

OTHER = "second"
WORDS = {"success": "completed", "failed": "failed", "denied": "denied", "expired": "unknown"}
HOUR = 3600.0
TIMES = {"soon": HOUR, "later": 10 * HOUR}
"""Host tools with a deadline, in seconds; they are reminded of at half of it."""

LIFE = 1000 * HOUR
"""How long a session lives without a turn."""

ASKS = {
    "server": ("add",),
    "host1": ("open_page",),
    "host2": ("open_page",) * 2,
    "host3": ("open_page",) * 3,
    "mixed": ("add", "open_page"),
    "soon": ("soon",),
    "both": ("soon", "later"),
}
"""The calls that the model makes where its plan says so."""

RETRYABLE = {"internal", "empty_response"}
FAILS = {"boom": "internal", "bad": "provider_client_error", "empty": "empty_response"}


class Move(NamedTuple):
    """One model request: what the model does, and the words of people that it is sent."""

    what: str
    text: str
    calls: tuple[tuple[str, str], ...]
    prompts: tuple[str, ...]


class Refused(Exception):
    """An input that does not fit."""

    def __init__(self, code: str, **facts: Any) -> None:
        super().__init__(code)
        self.code, self.facts = code, facts


@dataclass
class Message:
    id: str
    parent: str | None
    role: Literal["user", "assistant", "host"]
    content: str = ""
    heard: list[str] = field(default_factory=list)
    error: str | None = None


@dataclass
class Call:
    id: str
    tool: str
    message: str
    state: tuple[str, str | None] | None = None


@dataclass
class Steering:
    id: str
    content: str
    profile: str | None
    receipt: tuple[str, str | None] = ("queued", None)
    message: str | None = None


@dataclass
class Turn:
    id: str
    kind: str
    profile: str
    plan: tuple[str, ...] = ()
    content: str = ""
    parent: str | None = None
    user: str | None = None
    subject: str | None = None
    handover: str = "one"
    result: tuple[str, str] | None = None
    last: bool = True
    polite: bool = False
    replaces: bool = False
    cancelled: bool = False
    message: str = ""
    number: int = 0
    attempt: int = 1
    step: int = 0
    said: list[str] = field(default_factory=list)
    taken: list[Steering] = field(default_factory=list)
    state: str = "waits"
    error: str | None = None
    revision: int = 0
    pending: tuple[str, ...] = ()
    text: str = ""
