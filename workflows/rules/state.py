"""How the state of one session's workflow changes, and how much of it is kept."""

from datetime import datetime
from typing import Any, Literal

from workflows.contracts.carried import (
    QueuedTurn,
    SessionState,
)
from workflows.contracts.inputs import CardInput, Input, MessageInput, SteerInput
from workflows.contracts.json_text import digest_of
from workflows.contracts.policies import CARRIED_IDS, RECENT_IDS
from workflows.model.state import Head

KEPT_REFUSALS = 50


def remember(known: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """`known` with one more entry, the oldest dropped beyond RECENT_IDS."""
    kept = {**known, key: value}
    while len(kept) > RECENT_IDS:
        kept.pop(next(iter(kept)))
    return kept


def forget(known: dict[str, Any], key: str) -> dict[str, Any]:
    """`known` without the entry, whose input came to nothing."""
    return {other: kept for other, kept in known.items() if other != key}


def carried(state: SessionState, now: datetime) -> SessionState:
    """What the next run needs to know: the newest ids and keys, the ids of inputs that still wait, which no row knows yet, and cancels of
    turns that may still come.
    """
    waiting = [job for job in state.queue if isinstance(job, QueuedTurn)]
    turns = {job.turn.turn_id for job in waiting}
    calls = {job.result.call_id for job in waiting if job.result}
    messages = {key for key, known in state.recent.items() if known.turn_id in turns}
    return state.model_copy(
        update={
            "recent": newest(state.recent, messages),
            "recorded": newest(state.recorded, calls),
            "steered": newest(state.steered, set()),
            "keys": newest(state.keys, set()),
            "tombstones": {turn_id: until for turn_id, until in state.tombstones.items() if now < datetime.fromisoformat(until)},
        }
    )


def newest(known: dict[str, Any], needed: set[str]) -> dict[str, Any]:
    """The CARRIED_IDS newest entries of `known`, and those that are needed."""
    kept = needed | set(list(known)[-CARRIED_IDS:])
    return {key: value for key, value in known.items() if key in kept}


NO_MEANING = {"id", "digest", "turn_id", "tenant", "principal", "roles", "expected_revision", "key", "rows", "result_json"}


def body_digest(asked: Input) -> str:
    """SHA-256 (hex) over what an input means. A repeat under the same id must have the same digest (R63, R154)."""
    return digest_of(asked.model_dump(mode="json", exclude=NO_MEANING))


def named_digest(asked: MessageInput | SteerInput | CardInput) -> str:
    """The same over an input that has an id, as the api does it over the body, whose digest comes with the input then.

    What the api prepares (files, a host context) has another one by another way.
    """
    said = asked.model_dump(mode="json", exclude=NO_MEANING, exclude_defaults=True)
    return asked.digest or digest_of(said | {"message_type": "steering"} if isinstance(asked, SteerInput) else said)


def profile_of(head: Head, asked: str | None) -> str:
    """The profile a turn runs under: the asked one, else the session's, else the worker's default."""
    return asked or head.binding.profile or head.default_profile


Kind = Literal["idle", "running", "waiting_host"]


def status_of(head: Head, running: bool) -> Kind:
    """The session's status as operators and readers see it."""
    if running:
        return "running"
    return "waiting_host" if head.batch else "idle"
