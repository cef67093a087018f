"""What pause tokens are bound to: the session, its owner, and a host call with exactly the arguments that were shown."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

import asyncpg

from activities.db.pool import Database
from activities.db.reads import reading, sql


@dataclass(frozen=True, slots=True)
class Pause:
    """A host call that a token can be made for. `digest` is the SHA-256 (hex) of its arguments; no owner: only admins see the session."""

    tenant: str
    session_uid: UUID
    owner: str | None
    call_id: str
    token_id: UUID
    digest: str
    handover: Literal["one", "all"]


@dataclass(frozen=True, slots=True)
class PausedCall:
    """What the rows say when a token comes back. `token_id` and `digest` are None if the call is gone."""

    session_id: str
    owner: str | None
    token_id: UUID | None
    digest: str | None


SHOWN_IN = {
    "host_action.pending": "pending_action",
    "host_action.reminder": "pending_action",
    "turn.final": "pending_tool_call",
}
"""Events that show a pending call, and the member that does."""


def shown_calls(event_type: str, data: str) -> list[str]:
    """The ids of the calls that an event (its data as JSON text) asks the host for, the first one first."""
    member = SHOWN_IN.get(event_type)
    pending = json.loads(data).get(member) if member else None
    return [] if pending is None else ids_of(pending)


def ids_of(pending: Mapping[str, Any]) -> list[str]:
    """The ids of a pending call, as it is shown, and of those queued behind it."""
    return [pending.get("call_id") or pending["tool_call_id"], *(call["call_id"] for call in pending.get("queued", ()))]


async def pauses_of(conn: asyncpg.Connection, session_uid: UUID, call_ids: Iterable[str]) -> dict[str, Pause]:
    """What tokens for these calls are bound to, by call id."""
    return {row["call_id"]: Pause(**row) async for row in sql.pauses_of(conn, session_uid=session_uid, call_ids=list(call_ids))}


class Pauses:
    """Reads of host calls for their tokens. `expires` and `held` as `Reads` takes them. Raises ServiceUnavailable where Postgres is not there."""

    def __init__(self, database: Database, *, expires: bool, held: bool) -> None:
        self._database = database
        self._shown = {"expires": expires, "held": held}

    async def of(self, session_uid: UUID, call_ids: Iterable[str]) -> dict[str, Pause]:
        """What tokens for these calls are bound to, by call id."""
        async with reading(self._database) as conn:
            return await pauses_of(conn, session_uid, call_ids)

    async def call(self, session_uid: UUID, call_id: str) -> PausedCall | None:
        """The call of a token that came back, None if its session is gone."""
        async with reading(self._database) as conn:
            row = await sql.paused_call(conn, session_uid=session_uid, call_id=call_id, **self._shown)
        return None if row is None else PausedCall(**row)
