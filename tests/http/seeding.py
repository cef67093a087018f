"""Rows as activities write them, for tests of what is read from rows alone."""

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import asyncpg

T0 = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
WHOLE_BRANCH = 2_147_483_647


def after(seconds: float) -> datetime:
    """A time `seconds` after the beginning of the test's world."""
    return T0 + timedelta(seconds=seconds)


async def insert(conn: asyncpg.Connection, table: str, **columns: Any) -> None:
    names = list(columns)
    places = ", ".join(f"${number}" for number, _ in enumerate(names, 1))
    await conn.execute(f"insert into {table} ({', '.join(names)}) values ({places})", *columns.values())


@dataclass
class Seed:
    """One session that is written row by row. `seq` is its newest event, `feed` its newest change."""

    conn: asyncpg.Connection
    session_id: str
    uid: UUID = field(default_factory=uuid4)
    seq: int = 0
    feed: int = 0

    async def session(self, *, owner: str | None = "local", tenant: str = "default", at: float = 0.0, **columns: Any) -> "Seed":
        known = {"profile": "default", "created_at": after(at), "updated_at": after(at), **columns}
        await insert(self.conn, "sessions", session_uid=self.uid, tenant=tenant, session_id=self.session_id, owner=owner, **known)
        return self

    async def branch(self, branch: int, tip: int, chain: list[int], depths: list[int]) -> None:
        await insert(self.conn, "branches", session_uid=self.uid, branch=branch, tip_depth=tip, chain=chain, chain_depths=depths)

    async def message(self, id: str, parent: str | None, depth: int, *, role: str = "user", branch: int = 0, **columns: Any) -> None:
        known = {
            "content": f"content of {id}",
            "count_all": depth + 1,
            "count_user": 0,
            "count_assistant": 0,
            "change": 1,
            "created_at": after(depth),
            "updated_at": after(depth),
            "said_at": after(depth),
            "settled": True,
            **columns,
        }
        await insert(self.conn, "messages", session_uid=self.uid, id=id, parent_id=parent, depth=depth, branch=branch, role=role, **known)

    async def segment(self, message_id: str, position: int, kind: str, text: str = "") -> None:
        await insert(self.conn, "segments", session_uid=self.uid, message_id=message_id, position=position, kind=kind, text=text)

    async def call(self, call_id: str, message_id: str, *, segment: int, position: int = 0, turn_id: str = "t1", **columns: Any) -> None:
        known = {
            "attempt": 1,
            "step": 1,
            "tool_name": "open_page",
            "category": "host",
            "arguments": '{"url": "https://example.org"}',
            "arguments_digest": "0" * 64,
            "options": "{}",
            "state": "open",
            "requested_at": after(1),
            **columns,
        }
        await insert(
            self.conn,
            "calls",
            session_uid=self.uid,
            call_id=call_id,
            message_id=message_id,
            segment=segment,
            position=position,
            turn_id=turn_id,
            **known,
        )

    async def steering(self, id: str, message_id: str, *, before_segment: int, delivered_at: datetime, **columns: Any) -> None:
        """Steering that was delivered."""
        self.feed += 1
        known = {"content": f"content of {id}", "digest": "0" * 64, "turn_id": "t1", "accepted_at": delivered_at, **columns}
        place = {"message_id": message_id, "before_segment": before_segment, "delivered_at": delivered_at}
        numbers = {"number": self.feed, "change": self.feed, "status": "delivered"}
        await insert(self.conn, "steering", session_uid=self.uid, id=id, **place, **numbers, **known)

    async def turn(self, turn_id: str, number: int, *, state: str = "running", final: Any = None, **columns: Any) -> None:
        known = {
            "kind": "message",
            "message_id": "a1",
            "user_message_id": "u1",
            "profile": "default",
            "accepted_at": T0,
            "started_at": T0,
            "ended_at": None if state == "running" else after(1),
            "final": None if final is None else json.dumps(final),
            **columns,
        }
        await insert(self.conn, "turns", session_uid=self.uid, turn_id=turn_id, number=number, state=state, **known)

    async def batch(self, message_id: str, *, turn_id: str = "t1", at: float = 1.0) -> None:
        known = {"turn_id": turn_id, "step": 1, "state": "open", "opened_at": after(at)}
        await insert(self.conn, "host_batches", session_uid=self.uid, message_id=message_id, **known)

    async def event(self, type: str, data: Any = None, *, turn_id: str | None = "t1", announce: bool = True) -> int:
        """A durable event, announced as its transaction commits."""
        async with self.conn.transaction():
            self.seq += 1
            await insert(
                self.conn,
                "events",
                session_uid=self.uid,
                seq=self.seq,
                turn_id=turn_id,
                type=type,
                data=json.dumps(data or {}),
                at=after(self.seq),
            )
            if announce:
                await self.notify({"e": self.seq})
        return self.seq

    async def delta(self, text: str, *, position: int, segment: int = 0, offset: int | None = None, in_note: bool = True) -> None:
        """Live text behind the newest event."""
        start = position if offset is None else offset
        async with self.conn.transaction():
            await insert(
                self.conn,
                "live_deltas",
                session_uid=self.uid,
                after_seq=self.seq,
                position=position,
                turn_id="t1",
                segment=segment,
                start_offset=start,
                kind="text",
                text=text,
            )
            note = {"a": self.seq, "p": position, "t": "t1", "g": segment, "o": start, "k": "text", "at": T0.isoformat()}
            await self.notify(note | ({"x": text} if in_note else {}))

    async def settle(self, message_id: str, parts: list[dict[str, Any]]) -> int:
        """The live text becomes a `text` row."""
        async with self.conn.transaction():
            await self.conn.execute("delete from live_deltas where session_uid = $1", self.uid)
            return await self.event("text", {"message_id": message_id, "parts": parts})

    async def notify(self, note: dict[str, Any]) -> None:
        await self.conn.execute("select pg_notify('outlast', $1)", json.dumps({"s": str(self.uid), **note}))
