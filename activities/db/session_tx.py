"""One transaction on one session: its row is locked, events are collected, everything is announced when it commits."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import asyncpg

from activities.db.queries import load_queries
from workflows.contracts.errors import OutlastError
from workflows.contracts.json_text import json_text
from workflows.contracts.steps import Birth
from workflows.model.session import SessionRef

sql = load_queries()

ENDS = ("turn.completed", "input.refused")
"""Events that somebody may be waiting for who wants nothing but an answer."""


def moment(text: str) -> datetime:
    """An ISO 8601 time with offset as a datetime."""
    return datetime.fromisoformat(text)


def now_text() -> str:
    """The present, UTC, as ISO 8601. An activity reads it once and returns it, so that its rows can be derived again."""
    return datetime.now(UTC).isoformat()


class Transactions(Protocol):
    """Where transactions on sessions take place: the pool of a process, or a session's shadow."""

    def transaction(self) -> AbstractAsyncContextManager["asyncpg.Connection[asyncpg.Record]"]:
        """A connection inside a transaction that commits at the end of the block and rolls back if the block raises."""


class SessionGone(OutlastError):
    """The session's row is not there (any more)."""


@dataclass(frozen=True)
class Event:
    """A durable event that waits for its commit."""

    seq: int
    turn_id: str | None
    type: str
    data: str
    at: datetime


@dataclass(frozen=True)
class LivePiece:
    """A stretch of one segment that was streamed since the last durable event."""

    segment: int
    kind: str
    offset: int
    text: str


class SessionTx:
    """The session as this transaction sees and leaves it. Every event raises `cursor`; `finish` writes them all at once.

    When it was locked, a host batch or some call was open (`waiting`), steering was pending (`steered`).
    """

    def __init__(
        self, conn: "asyncpg.Connection[asyncpg.Record]", row: asyncpg.Record, turn_id: str | None, ttl_seconds: float, tool_text_limit: int
    ) -> None:
        self.conn = conn
        self.turn_id = turn_id
        self.uid = str(row["session_uid"])
        self.session_id: str = row["session_id"]
        self.tenant: str = row["tenant"]
        self.owner: str | None = row["owner"]
        self.profile: str = row["profile"]
        self.subject: str | None = row["subject"]
        self.active_leaf_id: str | None = row["active_leaf_id"]
        self.revision: int = row["revision"]
        self.turn_number: int = row["turn_number"]
        self.message_count: int = row["message_count"]
        self.cursor: int = row["cursor"]
        self.feed: int = row["feed"]
        self.updated_at: datetime = row["updated_at"]
        self.host_context_known: bool = row["host_context_known"]
        self.title: str | None = row["title"]
        self.expires_at: datetime | None = row["expires_at"]
        self.ttl_seconds = ttl_seconds
        self.tool_text_limit = tool_text_limit
        self.turn_state: str | None = row["turn_state"]
        self.turn_attempt: int | None = row["turn_attempt"]
        self.turn_run: int | None = row["turn_run"]
        self.turn_message_id: str | None = row["turn_message_id"]
        self.turn_usage: str | None = row["turn_usage"]
        self.message_usage: str | None = row["message_usage"]
        self.waiting: bool = row["waiting"]
        self.steered: bool = row["steered"]
        self._streaming: bool = row["streaming"]
        self._events: list[Event] = []
        self._changed = False

    def is_over(self, attempt: int) -> bool:
        """True if this attempt of the transaction's turn has ended or a newer one has begun: a late writer has nothing to add (R33)."""
        if self.turn_attempt is None:
            return False
        return self.turn_attempt > attempt or (self.turn_attempt == attempt and self.turn_state != "running")

    def slide(self, at: datetime) -> str:
        """Moves the session's expiry with what happened `at`, if sessions expire. Answers it (ISO 8601), or nothing (R176, R179)."""
        if not self.ttl_seconds:
            return ""
        self.change(at, expires_at=at + timedelta(seconds=self.ttl_seconds))
        return self.expiry

    @property
    def expiry(self) -> str:
        """When the session expires as this transaction leaves it (ISO 8601); empty: never."""
        return self.expires_at.isoformat() if self.expires_at and self.ttl_seconds else ""

    def next_change(self) -> int:
        """A new number of the change feed, for a message whose row changes."""
        self.feed += 1
        self._changed = True
        return self.feed

    def change(self, at: datetime, **fields: Any) -> None:
        """Sets fields of the session's row."""
        for name, value in fields.items():
            setattr(self, name, value)
        self.updated_at = max(self.updated_at, at)
        self._changed = True

    async def announce(self, type: str, turn_id: str | None, at: datetime, data: dict[str, Any]) -> None:
        """Adds a durable event. Text that is still live is fixed before it, so that readers see the order in which things were said."""
        if self._streaming:
            await self.fix_live_text(at, stored=False)
        self._add(type, turn_id, at, json_text(data))

    def _add(self, type: str, turn_id: str | None, at: datetime, data: str) -> None:
        self.cursor += 1
        self._events.append(Event(self.cursor, turn_id, type, data, at))

    async def fix_live_text(self, at: datetime, *, stored: bool, unsent: Sequence[LivePiece] = (), turn_id: str = "") -> list[LivePiece]:
        """Turns live text into a `text` event. `stored`: its segments are written by this transaction, so characters are only pointed at.

        `unsent` is what the step of `turn_id` had not streamed yet: readers get it by this event.
        """
        rows = [row async for row in sql.take_live_deltas(self.conn, session_uid=self.uid)] if self._streaming else []
        self._streaming = False
        pieces = with_rest(joined(rows), unsent)
        if not pieces:
            return []
        parts = [
            {"segment": p.segment, "kind": p.kind, "offset": p.offset, "length": len(p.text)} | ({} if stored else {"text": p.text})
            for p in pieces
        ]
        turn_id = rows[0]["turn_id"] if rows else turn_id
        self._add("text", turn_id, at, json_text({"message_id": await self._message_of(turn_id), "parts": parts}))
        return pieces

    async def _message_of(self, turn_id: str) -> str | None:
        """The assistant message that a turn writes to."""
        if turn_id == self.turn_id and self.turn_message_id:
            return self.turn_message_id
        turn = await sql.turn_so_far(self.conn, session_uid=self.uid, turn_id=turn_id)
        message_id: str | None = turn["message_id"] if turn else None
        return message_id

    async def finish(self) -> None:
        """Writes the session's row and the collected events, and wakes readers at the commit."""
        if not self._changed and not self._events:
            return
        session = {
            "session_uid": self.uid,
            "active_leaf_id": self.active_leaf_id,
            "revision": self.revision,
            "turn_number": self.turn_number,
            "message_count": self.message_count,
            "cursor": self.cursor,
            "feed": self.feed,
            "updated_at": self.updated_at,
            "subject": self.subject,
            "profile": self.profile,
            "owner": self.owner,
            "title": self.title,
            "expires_at": self.expires_at,
        }
        if not self._events:
            await sql.store_session(self.conn, **session)
            return
        await sql.store_session_and_events(
            self.conn,
            **session,
            seqs=[event.seq for event in self._events],
            turn_ids=[event.turn_id for event in self._events],
            types=[event.type for event in self._events],
            datas=[event.data for event in self._events],
            ats=[event.at for event in self._events],
            note=json.dumps({"s": self.uid, "e": self.cursor, "f": int(any(event.type in ENDS for event in self._events))}),
        )


def joined(rows: Sequence[asyncpg.Record]) -> list[LivePiece]:
    """Adjacent pieces of a segment as one."""
    pieces: list[LivePiece] = []
    for row in rows:
        last = pieces[-1] if pieces else None
        if last and last.segment == row["segment"] and last.offset + len(last.text) == row["start_offset"]:
            pieces[-1] = LivePiece(last.segment, last.kind, last.offset, last.text + row["text"])
        else:
            pieces.append(LivePiece(row["segment"], row["kind"], row["start_offset"], row["text"]))
    return pieces


def with_rest(pieces: list[LivePiece], unsent: Sequence[LivePiece]) -> list[LivePiece]:
    """The pieces, and behind them what is not among them yet: a write whose answer was lost counts as unsent and may be there."""
    ends = {piece.segment: piece.offset + len(piece.text) for piece in pieces}
    whole = list(pieces)
    for rest in unsent:
        start = max(ends.get(rest.segment, 0), rest.offset)
        if text := rest.text[start - rest.offset :]:
            whole.append(LivePiece(rest.segment, rest.kind, start, text))
    return whole


@asynccontextmanager
async def session_tx(
    db: Transactions,
    session: SessionRef,
    turn_id: str | None = None,
    birth: Birth | None = None,
    *,
    ttl_seconds: float = 0.0,
    tool_text_limit: int = 0,
) -> AsyncIterator[SessionTx]:
    """Locks the session for one transaction. `birth`: makes its row first, if it is not there. `ttl_seconds`: how long it lives on (0: for ever).
    `tool_text_limit`: characters of one tool result that the model is given, needed only by who ends turns.

    Raises SessionGone if there is no such session, ServiceUnavailable if Postgres is not there.
    """
    async with db.transaction() as conn:
        if birth:
            await _bear(conn, session, birth)
        await sql.take_session(conn, session_uid=session.session_uid)
        row = await sql.lock_session(conn, session_uid=session.session_uid, turn_id=turn_id)
        if row is None:
            raise SessionGone(session.session_uid)
        tx = SessionTx(conn, row, turn_id, ttl_seconds, tool_text_limit)
        yield tx
        await tx.finish()


async def _bear(conn: Any, session: SessionRef, birth: Birth) -> None:
    await sql.insert_session(
        conn,
        session_uid=session.session_uid,
        tenant=session.tenant,
        session_id=session.session_id,
        owner=birth.owner,
        profile=birth.profile,
        subject=birth.subject,
        created_at=moment(birth.created_at),
    )
