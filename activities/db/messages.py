"""Messages as they are shown: rows of the tree with their segments and tool calls put together."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

import asyncpg

from activities.db.pool import Database
from activities.db.reads import reading, sql

Conn: TypeAlias = "asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]"

DisplayRow = dict[str, Any]
"""A message as `GET …/messages` shows it. Times are datetimes; JSON values are Python values."""


class Messages:
    """Reads of a session's message tree. Three statements for a path of any length."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def path(self, session_uid: UUID, leaf_id: str) -> list[DisplayRow]:
        """The display rows from the root to `leaf_id`; empty if there is no such message."""
        async with reading(self._database, snapshot=True) as conn:
            rows = [row async for row in sql.path_messages(conn, session_uid=session_uid, leaf_id=leaf_id)]
            return await _shown(conn, session_uid, rows)

    async def one(self, session_uid: UUID, message_id: str) -> DisplayRow | None:
        """One display row, None if there is no such message."""
        async with reading(self._database, snapshot=True) as conn:
            row = await sql.one_message(conn, session_uid=session_uid, message_id=message_id)
            return None if row is None else (await _shown(conn, session_uid, [row]))[0]

    async def tree(self, session_uid: UUID) -> list[DisplayRow]:
        """Every message without its segments, parents before their children."""
        async with reading(self._database) as conn:
            return [dict(row) async for row in sql.tree_messages(conn, session_uid=session_uid)]


async def _shown(conn: Conn, session_uid: UUID, rows: list[asyncpg.Record]) -> list[DisplayRow]:
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
