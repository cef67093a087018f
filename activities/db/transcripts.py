"""The transcript of a path: who said what, row by row. `create view transcript` in schema.sql says which rows there are."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import asyncpg

from activities.db.pool import Database
from activities.db.reads import reading, sql

Speaker = Literal["all", "user", "assistant"]
Role = Literal["user", "assistant", "tool", "host", "system"]

SLICE = 500
"""Messages that one statement reads. Those of a path lie one a depth, so a slice is a range of depths."""

_FAR = 2**31 - 1
"""No session has as many rows; a larger number of a request means the same and still fits a column."""


@dataclass(frozen=True, slots=True)
class TranscriptRow:
    """One row. `index` counts from 0 over the rows of the speaker who was asked for; `at` is the row's own time.

    A tool's row is one of the message that called it, and has `tool_name` and `call_id`. `outcome` and `status` are None for a call
    that succeeded. `content` is then the output as text.
    """

    index: int
    role: Role
    content: str
    message_id: str
    at: datetime
    tool_name: str | None = None
    call_id: str | None = None
    outcome: str | None = None
    status: str | None = None


class Transcripts:
    """Reads of transcripts. None stands for a path that is not there. Raises ServiceUnavailable as all reads do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def at(self, session_uid: UUID, leaf_id: str, speaker: Speaker, index: int) -> list[TranscriptRow] | None:
        """The row that `index` names, counted from the end if negative; none beyond either end. Costs the same in any session (S16)."""
        ordinal = max(-_FAR, min(_FAR, index))
        async with reading(self._database) as conn:
            row = await sql.transcript_row(conn, session_uid=session_uid, leaf_id=leaf_id, speaker=speaker, ordinal=ordinal)
            if row is not None:
                return [_row(row, row["index"])]
            return None if await sql.path_depth(conn, session_uid=session_uid, leaf_id=leaf_id) is None else []

    async def between(
        self, session_uid: UUID, leaf_id: str, speaker: Speaker, since: datetime | None, until: datetime | None, limit: int | None
    ) -> list[TranscriptRow] | None:
        """The rows whose own time is neither before `since` nor after `until`, at most `limit`, the first ones."""
        named = {"session_uid": session_uid, "leaf_id": leaf_id}
        async with reading(self._database, snapshot=True) as conn:
            if await sql.path_depth(conn, **named) is None:
                return None
            rows = sql.transcript_between(conn, **named, speaker=speaker, since=since, until=until, count=_bounded(limit))
            return [_row(row, row["index"]) async for row in rows]

    async def whole(self, session_uid: UUID, leaf_id: str, speaker: Speaker, limit: int | None) -> list[TranscriptRow] | None:
        """All rows, or the first `limit`."""
        most = _bounded(limit)
        async with reading(self._database, snapshot=True) as conn:
            depth: int | None = await sql.path_depth(conn, session_uid=session_uid, leaf_id=leaf_id)
            if depth is None:
                return None
            rows: list[TranscriptRow] = []
            for first in range(0, depth + 1, SLICE):
                if len(rows) >= most:
                    break
                found = sliced(conn, session_uid, leaf_id, first, min(depth, first + SLICE - 1), speaker)
                rows += [replace(row, index=len(rows) + number) for number, row in enumerate([row async for row in found])]
            return rows[:most]


async def sliced(
    conn: Any, session_uid: UUID, leaf_id: str, first: int, last: int, speaker: Speaker = "all"
) -> AsyncIterator[TranscriptRow]:
    """The rows of the messages from depth `first` to `last` of a path; `index` is not set."""
    async for row in sql.transcript_slice(conn, session_uid=session_uid, leaf_id=leaf_id, speaker=speaker, first=first, last=last):
        yield _row(row, 0)


def _bounded(limit: int | None) -> int:
    return _FAR if limit is None else min(limit, _FAR)


def _row(row: asyncpg.Record, index: int) -> TranscriptRow:
    if row["role"] != "tool":
        return TranscriptRow(index, row["role"], row["content"], row["id"], row["at"])
    outcome = None if row["outcome"] == "success" else row["outcome"]
    content = output_text(row["output"], row["content"])
    return TranscriptRow(index, "tool", content, row["message_id"], row["at"], row["tool_name"], row["id"], outcome, row["status"])


def output_text(output: str | None, told: str | None) -> str:
    """A call's output as text: a JSON string's characters, other JSON as it was sent. `told`: what the model read where there is no output."""
    if output is None:
        return told or ""
    value = json.loads(output) if output.lstrip().startswith('"') else output
    return value if isinstance(value, str) else output
