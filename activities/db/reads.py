"""What the api reads: which ids exist, sessions, what waits for hosts, how turns ended. Messages are in messages.py, events in events.py."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import asyncpg

from activities.db.pool import Database
from activities.db.queries import load_queries
from workflows.contracts.errors import ServiceUnavailable
from workflows.model.call import CallStatus

SessionStatus = Literal["idle", "running", "waiting_host"]
sql = load_queries()


@dataclass(frozen=True, slots=True)
class Door:
    """What the rows know about an input before it is sent.

    `message_digest` is None for a message that no client sent under that id (an assistant's). `call_status` is None while a known
    call is open. `ended_turn` is the session's newest turn if it has ended.
    """

    session_uid: UUID
    owner: str | None
    profile: str
    subject: str | None
    revision: int
    message_known: bool
    message_digest: str | None
    message_turn_id: str | None
    parent_known: bool
    turn_known: bool
    call_known: bool
    call_status: CallStatus | None
    ended_turn: str | None


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call that the host has not answered. `arguments` is the JSON value that the model gave, `digest` its SHA-256 (hex).

    `token_id` is what pause tokens know it by; None in rows that were not written here.
    """

    call_id: str
    tool_name: str
    arguments: Any
    requested_at: datetime
    deadline_at: datetime | None
    token_id: UUID | None
    digest: str


@dataclass(frozen=True, slots=True)
class PendingAction:
    """The call that the host is asked for (first of `calls`) and those queued behind it, in model order.

    `handover` `all`: it is asked for all of them. `opened_at` is when it was asked for the first one.
    """

    session_uid: UUID
    session_id: str
    owner: str | None
    message_id: str
    handover: Literal["one", "all"]
    opened_at: datetime
    calls: tuple[WaitingCall, ...]


@dataclass(frozen=True, slots=True)
class LiveTurn:
    """The turn that is running."""

    turn_id: str
    number: int
    attempt: int
    kind: str
    message_id: str
    user_message_id: str | None
    started_at: datetime


@dataclass(frozen=True, slots=True)
class SessionLine:
    """A session as the list shows it."""

    session_uid: UUID
    session_id: str
    owner: str | None
    title: str | None
    status: SessionStatus
    turn_number: int
    message_count: int
    created_at: datetime
    updated_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class SessionDetail(SessionLine):
    """A session with everything that belongs to where it stands."""

    profile: str
    subject: str | None
    active_leaf_id: str | None
    revision: int
    pending: PendingAction | None
    live_turn: LiveTurn | None


@dataclass(frozen=True, slots=True)
class TurnOutcome:
    """A turn's newest attempt. `final`: the 200 body of `POST /api/chat` as JSON text, None, as `ended_at` is, while it runs. `owner`: the session's now."""

    attempt: int
    message_id: str
    user_message_id: str | None
    final: str | None
    ended_at: datetime | None
    owner: str | None


@dataclass(frozen=True, slots=True)
class Place:
    """The last row of a page: the next one begins behind it."""

    at: datetime
    session_uid: UUID


class Reads:
    """Reads of sessions and turns. Each is one statement and takes at most `timeout_seconds` of the database settings.

    `expires`: a session whose time is over is not there (R177), unless a turn is live or (`held`) a host is waited for.
    Raises ServiceUnavailable where Postgres is not there or doesn't answer in that time (R15).
    """

    def __init__(self, database: Database, *, expires: bool = False, held: bool = False) -> None:
        self._database = database
        self._shown = {"expires": expires, "held": held}

    async def door(
        self,
        tenant: str,
        session_id: str,
        *,
        message_id: str | None = None,
        parent_id: str | None = None,
        turn_id: str | None = None,
        call_id: str | None = None,
    ) -> Door | None:
        """What the rows know about a session and the ids that an input names; None if the session has no rows."""
        async with reading(self._database) as conn:
            named = {"message_id": message_id, "parent_id": parent_id, "turn_id": turn_id, "call_id": call_id}
            row = await sql.open_door(conn, tenant=tenant, session_id=session_id, **named, **self._shown)
        return None if row is None else _door(row)

    async def sessions(
        self, tenant: str, owner: str | None, *, updated_after: datetime | None, behind: Place | None, count: int
    ) -> list[SessionLine]:
        """At most `count` sessions, newest first; of the whole tenant if `owner` is None."""
        async with reading(self._database) as conn:
            rows = sql.list_sessions(
                conn,
                tenant=tenant,
                owner=owner,
                updated_after=updated_after,
                before_at=behind and behind.at,
                before_uid=behind and behind.session_uid,
                count=count,
                **self._shown,
            )
            return [SessionLine(**_line(row), status=_status(row["running"], row["waiting"])) async for row in rows]

    async def session(self, tenant: str, session_id: str) -> SessionDetail | None:
        """One session, None if it has no rows."""
        async with reading(self._database) as conn:
            row = await sql.session_detail(conn, tenant=tenant, session_id=session_id, **self._shown)
        return None if row is None else _detail(row)

    async def host_actions(self, tenant: str, owner: str | None, *, behind: Place | None, count: int) -> list[tuple[Place, PendingAction]]:
        """At most `count` pending actions, oldest first, each with its place in the list; of the whole tenant if `owner` is None."""
        async with reading(self._database) as conn:
            place = {"after_at": behind and behind.at, "after_uid": behind and behind.session_uid}
            rows = sql.list_host_actions(conn, tenant=tenant, owner=owner, **place, count=count, **self._shown)
            return [(Place(row["opened_at"], row["session_uid"]), _pending(row, row["message_id"], row["calls"])) async for row in rows]

    async def refusal(self, session_uid: UUID, turn_id: str) -> tuple[str, str | None] | None:
        """Code and words of the refusal that an accepted input met in the rows, so that its turn never began; `not_found` without words
        if the session's rows have gone (S20).
        """
        async with reading(self._database) as conn:
            row = await sql.refusal_of_turn(conn, session_uid=session_uid, turn_id=turn_id)
        return None if row is None else (row["code"], row["message"])

    async def turn(self, session_uid: UUID, turn_id: str) -> TurnOutcome | None:
        """A turn's newest attempt, None if it has not started."""
        async with reading(self._database) as conn:
            row = await sql.turn_outcome(conn, session_uid=session_uid, turn_id=turn_id)
        return None if row is None else TurnOutcome(**row)


@asynccontextmanager
async def reading(database: Database, *, snapshot: bool = False) -> AsyncIterator[asyncpg.Connection]:
    """A connection for one read, bounded in time as a whole. `snapshot`: all its statements see the same state."""
    try:
        async with asyncio.timeout(database.settings.timeout_seconds), database.connection() as conn, _given_up(conn):
            if not snapshot:
                yield conn
                return
            async with conn.transaction(isolation="repeatable_read", readonly=True):
                yield conn
    except TimeoutError as error:
        raise ServiceUnavailable("database", "Postgres did not answer in time") from error


@asynccontextmanager
async def _given_up(conn: asyncpg.Connection) -> AsyncIterator[None]:
    """Cuts a connection whose read is given up: the pool would wait for a server that hangs to confirm the cancellation."""
    try:
        yield
    except asyncio.CancelledError:
        conn.terminate()
        raise


def _door(row: asyncpg.Record) -> Door:
    recorded = row["call_state"] == "recorded"
    ended = row["newest_turn_id"] is not None and row["newest_turn_state"] != "running"
    return Door(
        session_uid=row["session_uid"],
        owner=row["owner"],
        profile=row["profile"],
        subject=row["subject"],
        revision=row["revision"],
        message_known=row["message_known"],
        message_digest=row["message_digest"],
        message_turn_id=row["message_turn_id"],
        parent_known=row["parent_known"],
        turn_known=row["turn_known"],
        call_known=row["call_state"] is not None,
        call_status=(row["call_status"] or "completed") if recorded else None,
        ended_turn=row["newest_turn_id"] if ended else None,
    )


def _line(row: asyncpg.Record) -> dict[str, Any]:
    names = ("session_uid", "session_id", "owner", "title", "turn_number", "message_count", "created_at", "updated_at", "expires_at")
    return {name: row[name] for name in names}


def _status(running: bool, waiting: bool) -> SessionStatus:
    if running:
        return "running"
    return "waiting_host" if waiting else "idle"


def _detail(row: asyncpg.Record) -> SessionDetail:
    pending = None if row["pending_calls"] is None else _pending(row, row["pending_message_id"], row["pending_calls"])
    live = None
    if row["turn_id"] is not None:
        live = LiveTurn(
            row["turn_id"], row["number"], row["attempt"], row["kind"], row["message_id"], row["user_message_id"], row["started_at"]
        )
    return SessionDetail(
        **_line(row),
        status=_status(live is not None, pending is not None),
        profile=row["profile"],
        subject=row["subject"],
        active_leaf_id=row["active_leaf_id"],
        revision=row["revision"],
        pending=pending,
        live_turn=live,
    )


def _pending(row: asyncpg.Record, message_id: str, calls: str) -> PendingAction:
    where = {name: row[name] for name in ("session_uid", "session_id", "owner", "handover", "opened_at")}
    return PendingAction(**where, message_id=message_id, calls=tuple(_waiting(call) for call in json.loads(calls)))


def _waiting(call: dict[str, Any]) -> WaitingCall:
    deadline = call["deadline_at"]
    return WaitingCall(
        call_id=call["call_id"],
        tool_name=call["tool_name"],
        arguments=call["arguments"],
        requested_at=datetime.fromisoformat(call["requested_at"]),
        deadline_at=datetime.fromisoformat(deadline) if deadline else None,
        token_id=UUID(call["token_id"]) if call["token_id"] else None,
        digest=call["digest"],
    )
