"""Tool calls: what the model asked for, and what became of it."""

from typing import Literal

from workflows.model.base import Record

Category = Literal["server", "host"]
HostOutcome = Literal["success", "failed", "denied", "expired"]
"""`expired` is no host's word: the deadline passed, and what became of the action is unknown."""
CallStatus = Literal["completed", "failed", "denied", "cancelled", "superseded", "unknown"]
"""How a call was resolved (sessions.md, Outcomes). `completed` is stored as no status at all."""


class OpenCall(Record):
    """A call without a result. Its arguments are in the model's response; `arguments_digest` (SHA-256, hex) binds to them."""

    call_id: str
    tool_name: str
    category: Category
    arguments_digest: str = ""
    timeout_seconds: float = 30.0
    attempts: int = 1
    idempotent: bool = False
    deadline_seconds: float | None = None
    remind_seconds: float | None = None


class CallResult(Record):
    """What a host answered. `output` is JSON text exactly as it was sent."""

    call_id: str
    output: str
    outcome: HostOutcome = "success"
