"""Messages as they are shown: rows of the tree with their segments and tool calls put together."""

import heapq
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from activities.db.pool import Database
from activities.db.reads import reading, sql

Conn: TypeAlias = "asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]"

DisplayRow = dict[str, Any]
"""A message as `GET …/messages` shows it. Times are datetimes; JSON values are Python values."""


@dataclass(frozen=True, slots=True)
class KnownSteering:
    """Steering that came before. `promoted_turn_id` is the turn of its own, if it was promoted and that turn has begun."""

    digest: str
    delivered: bool
    promoted_turn_id: str | None


class Messages:
    """Reads of a session's message tree and its steering. Four statements for a path of any length."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def path(self, session_uid: UUID, leaf_id: str) -> list[DisplayRow]:
        """The display rows from the root to `leaf_id`, all steering of the session among them by time (R157); empty if there is no such
        message.
        """
        async with reading(self._database, snapshot=True) as conn:
            rows = [row async for row in sql.path_messages(conn, session_uid=session_uid, leaf_id=leaf_id)]
            if not rows:
                return []
            steering = [display_steering(row) async for row in sql.shown_steering(conn, session_uid=session_uid)]
            return list(heapq.merge(await shown(conn, session_uid, rows), steering, key=_shown_at))

    async def one(self, session_uid: UUID, message_id: str) -> DisplayRow | None:
        """One display row, also of steering; None if there is no such id."""
        async with reading(self._database, snapshot=True) as conn:
            row = await sql.one_message(conn, session_uid=session_uid, message_id=message_id)
            if row is not None:
                return (await shown(conn, session_uid, [row]))[0]
            steering = await sql.one_steering(conn, session_uid=session_uid, id=message_id)
            return None if steering is None else display_steering(steering)

    async def steering(self, session_uid: UUID, steering_id: str) -> KnownSteering | None:
        """What came under a steering id, None if nothing did."""
        async with reading(self._database) as conn:
            row = await sql.known_steering(conn, session_uid=session_uid, id=steering_id)
        return None if row is None else KnownSteering(row["digest"], row["delivered"], row["promoted_turn_id"])

    async def tree(self, session_uid: UUID) -> list[DisplayRow]:
        """Every message without its segments, parents before their children."""
        async with reading(self._database) as conn:
            return [dict(row) async for row in sql.tree_messages(conn, session_uid=session_uid)]


async def shown(conn: Conn, session_uid: UUID, rows: list[asyncpg.Record]) -> list[DisplayRow]:
    """The display rows of some messages."""
    ids = [row["id"] for row in rows]
    segments: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    async for segment in sql.display_segments(conn, session_uid=session_uid, message_ids=ids):
        segments[segment["message_id"]].append(segment)
    calls: dict[str, list[Mapping[str, Any]]] = defaultdict(list)
    async for call in sql.display_calls(conn, session_uid=session_uid, message_ids=ids):
        calls[call["message_id"]].append(call)
    return [display(dict(row), segments[row["id"]], calls[row["id"]]) for row in rows]


def display(row: Mapping[str, Any], segments: Iterable[Mapping[str, Any]], calls: Iterable[Mapping[str, Any]] = ()) -> DisplayRow:
    """One display row from a message's row, its segments in order, and its calls in order. JSON columns are text."""
    groups: dict[int, list[Mapping[str, Any]]] = defaultdict(list)
    for call in calls:
        groups[call["segment"]].append(call)
    return {
        "id": row["id"],
        "parent_id": row["parent_id"],
        "role": row["role"],
        "content": row["content"],
        "segments": [_segment(segment, groups[segment["position"]]) for segment in segments],
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
        "turn_id": row["turn_id"],
        "profile": row["profile"],
        "model": row["model"],
        "usage": _json(row["usage"]),
        "error": _json(row["error"]),
        "attachments": _json(row["attachments"]) or [],
        "steering": None,
    }


def display_steering(row: Mapping[str, Any]) -> DisplayRow:
    """Steering as a display row: a user's words that are not in the tree, so without a parent."""
    return {
        "id": row["id"],
        "parent_id": None,
        "role": "user",
        "content": row["content"],
        "segments": [],
        "created_at": row["accepted_at"],
        "updated_at": row["delivered_at"] or row["accepted_at"],
        "turn_id": row["turn_id"],
        "profile": row["profile"],
        "model": None,
        "usage": None,
        "error": None,
        "attachments": [],
        "steering": {"status": row["status"], "delivered_at": row["delivered_at"], "message_id": row["message_id"]},
    }


def _shown_at(row: DisplayRow) -> datetime:
    """When a row is shown to have been said: a message when it was recorded, steering when it was delivered."""
    at: datetime = row["updated_at"] if row["steering"] else row["created_at"]
    return at


def _segment(segment: Mapping[str, Any], calls: list[Mapping[str, Any]]) -> dict[str, Any]:
    if segment["kind"] == "tool_group":
        return {"kind": "tool_group", "tools": [_tool(call) for call in calls]}
    if segment["kind"] == "component":
        return {"kind": "component", **(_json(segment["data"]) or {})}
    return {"kind": segment["kind"], "text": segment["text"]}


def _tool(call: Mapping[str, Any]) -> dict[str, Any]:
    """Absent outcome: success. Absent status: completed. Neither output nor outcome: still open."""
    tool = {"id": call["call_id"], "name": call["tool_name"], "input": _json(call["arguments"])}
    if call["output"] is not None:
        tool["output"] = _json(call["output"])
    if call["outcome"] not in (None, "success"):
        tool["outcome"] = call["outcome"]
    if call["status"] is not None:
        tool["status"] = call["status"]
    return tool


def _json(text: str | None) -> Any:
    return None if text is None else json.loads(text)
