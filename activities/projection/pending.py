"""What the host is asked for: the open batch, its calls that still wait, and how they are shown."""

import json
from typing import Any

import asyncpg

from activities.db.session_tx import SessionTx, sql


async def current_batch(conn: Any, session_uid: str) -> tuple[asyncpg.Record | None, list[asyncpg.Record]]:
    """The open host batch and every call of its response, the server's too, in the model's order."""
    batch: asyncpg.Record | None = await sql.current_batch(conn, session_uid=session_uid)
    if batch is None:
        return None, []
    where = {"message_id": batch["message_id"], "turn_id": batch["turn_id"], "attempt": batch["attempt"], "step": batch["step"]}
    return batch, [row async for row in sql.calls_of_step(conn, session_uid=session_uid, **where)]


async def pending_calls(tx: SessionTx) -> tuple[asyncpg.Record | None, list[asyncpg.Record]]:
    """The open batch and its calls that still wait, in the model's order."""
    batch, rows = await current_batch(tx.conn, tx.uid)
    return batch, [row for row in rows if row["category"] == "host" and row["state"] == "open"]


def named_first(waiting: list[asyncpg.Record], call_id: str) -> list[asyncpg.Record]:
    """The calls with the one that an event is about in front: of calls that are shown all at once any may be it."""
    return sorted(waiting, key=lambda row: bool(row["call_id"] != call_id))


def _queued(rows: list[asyncpg.Record]) -> list[dict[str, Any]]:
    return [{"call_id": row["call_id"], "tool_name": row["tool_name"], "arguments": json.loads(row["arguments"])} for row in rows]


def pending_tool_call(rows: list[asyncpg.Record]) -> dict[str, Any] | None:
    """`pending_tool_call` of a turn's answer."""
    if not rows:
        return None
    first = rows[0]
    return {
        "tool_name": first["tool_name"],
        "call_id": first["call_id"],
        "arguments": json.loads(first["arguments"]),
        "queued": _queued(rows[1:]),
    }


def pending_action(batch: asyncpg.Record, rows: list[asyncpg.Record]) -> dict[str, Any]:
    """`pending_action` of a session and of `host_action.pending`."""
    first = rows[0]
    return {
        "tool_call_id": first["call_id"],
        "tool_name": first["tool_name"],
        "arguments": json.loads(first["arguments"]),
        "assistant_message_id": batch["message_id"],
        "queued": _queued(rows[1:]),
        "deadline_at": first["deadline_at"].isoformat() if first["deadline_at"] else None,
    }
