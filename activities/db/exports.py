"""A session read from its first message to its last, a few messages at a time.

What belongs to an export is settled when it begins: the branches as long as they are then, or the path to one leaf. Its messages are read in
short statements of their own. So an export of any length holds no lock, no transaction and, while its reader is slow, no connection. A
message can't change behind it: only the one that a live turn is writing does, and it is read as it is when its place comes.
"""

from collections import defaultdict
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from activities.db.audit import Act, note
from activities.db.messages import DisplayRow, display_steering, shown
from activities.db.pool import Database
from activities.db.reads import reading, sql
from workflows.contracts.errors import OutlastError

Format = Literal["jsonl", "markdown", "openai", "pydantic-ai"]

AT_ONCE = 25
"""Messages that are in memory together. One may be of a megabyte, and so may each of its tools' outputs."""


class ExportCut(OutlastError):
    """The session went away in the middle of its export."""


@dataclass(frozen=True, slots=True)
class Exported:
    """A message with everything that belongs to it.

    `row` is its display form. `steering` is what it took, each with the number of the segment that it came before. `model_messages` are
    JSON texts, read only where they are asked for. `active`: it is on the session's active path.
    """

    row: DisplayRow
    active: bool
    steering: list[tuple[int, DisplayRow]]
    model_messages: list[str]


@dataclass(frozen=True, slots=True)
class _Range:
    branch: int
    first: int
    last: int


class Exports:
    """Reads whole sessions. Raises ServiceUnavailable as all reads do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def note(self, tenant: str, session_uid: UUID, by: str, at: datetime, facts: dict[str, Any]) -> None:
        """Puts an export on the record (S78)."""
        async with self._database.connection() as conn:
            await note(conn, Act("export", tenant, by, at, session_uid, facts=facts))

    async def has(self, session_uid: UUID, leaf_id: str) -> bool:
        """Whether a session has such a message."""
        async with reading(self._database) as conn:
            return await sql.path_depth(conn, session_uid=session_uid, leaf_id=leaf_id) is not None

    async def messages(
        self, session_uid: UUID, leaf_id: str | None, active_leaf_id: str | None, *, tree: bool, as_model_saw: bool
    ) -> AsyncIterator[Exported]:
        """The messages of the path to `leaf_id` (None: of no path), or of the whole `tree`, parents before their children.

        Raises ExportCut if the session goes away meanwhile.
        """
        async with reading(self._database, snapshot=True) as conn:
            active = {one.branch: one.last for one in await _path(conn, session_uid, active_leaf_id)}
            ranges = await (_tree(conn, session_uid) if tree else _path(conn, session_uid, leaf_id))
        for part in ranges:
            first = part.first
            while first <= part.last:
                count = min(AT_ONCE, part.last - first + 1)
                found = await self._some(session_uid, part.branch, first, count, as_model_saw=as_model_saw)
                if len(found) != count:
                    raise ExportCut("the session was deleted while it was exported")
                for depth, row, steering, bodies in found:
                    yield Exported(row, depth <= active.get(part.branch, -1), steering, bodies)
                first += count

    async def pending_steering(self, session_uid: UUID) -> list[DisplayRow]:
        """Steering that waits for a turn."""
        async with reading(self._database) as conn:
            return [display_steering(row) async for row in sql.export_pending_steering(conn, session_uid=session_uid)]

    async def _some(self, session_uid: UUID, branch: int, first: int, count: int, *, as_model_saw: bool) -> list[tuple[Any, ...]]:
        async with reading(self._database, snapshot=True) as conn:
            place = {"session_uid": session_uid, "branch": branch, "first": first, "count": count}
            rows = [row async for row in sql.export_messages(conn, **place)]
            which = {"session_uid": session_uid, "message_ids": [row["id"] for row in rows]}
            steering: dict[str, list[tuple[int, DisplayRow]]] = defaultdict(list)
            bodies: dict[str, list[str]] = defaultdict(list)
            if as_model_saw:
                async for body in sql.export_model_messages(conn, **which):
                    bodies[body["message_id"]].append(body["body"])
                return [(row["depth"], {"id": row["id"]}, [], bodies[row["id"]]) for row in rows]
            async for words in sql.export_steering(conn, **which):
                steering[words["message_id"]].append((words["before_segment"], display_steering(words)))
            displayed = await shown(conn, session_uid, rows)
        return [(row["depth"], told, steering[row["id"]], []) for row, told in zip(rows, displayed, strict=True)]


async def _path(conn: Any, session_uid: UUID, leaf_id: str | None) -> list[_Range]:
    if leaf_id is None:
        return []
    return [_range(row) async for row in sql.export_path(conn, session_uid=session_uid, leaf_id=leaf_id)]


async def _tree(conn: Any, session_uid: UUID) -> list[_Range]:
    """A branch has a larger number than the one that it hangs on, so parents come first."""
    return [_range(row) async for row in sql.export_tips(conn, session_uid=session_uid)]


def _range(row: Any) -> _Range:
    return _Range(row["branch"], row["first"], row["last"])
