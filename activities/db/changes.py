"""Messages as they changed, and what the model was told before them."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from activities.db.messages import DisplayRow, display_steering, shown
from activities.db.pool import Database
from activities.db.reads import reading, sql


@dataclass(frozen=True, slots=True)
class Changed:
    """A page of changes. `behind` is the number behind it."""

    rows: list[DisplayRow]
    behind: int
    active_leaf_id: str | None


class Changes:
    """Reads of a session's changes. Their numbers are raised under the session's lock, so what commits late has a later number (R262)."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def after(self, session_uid: UUID, change: int, since: datetime | None, count: int) -> Changed:
        """About `count` rows that changed after a number (and, if it is given, strictly later than `since`), each as it is now.

        A row that changed twice is there once, at its newest change.
        """
        async with reading(self._database, snapshot=True) as conn:
            position = await sql.feed_position(conn, session_uid=session_uid)
            found = [row async for row in sql.changes_after(conn, session_uid=session_uid, change=change, since=since, count=count)]
            ids = [row["id"] for row in found if row["kind"] == "message"]
            messages = [row async for row in sql.some_messages(conn, session_uid=session_uid, ids=ids)]
            words = [row["id"] for row in found if row["kind"] == "steering"]
            rows = {("message", row["id"]): row for row in await shown(conn, session_uid, messages)}
            async for row in sql.some_steering(conn, session_uid=session_uid, ids=words):
                rows["steering", row["id"]] = display_steering(row)
        whole = len(found) < count
        known = position["feed"] if position else 0
        behind = max(change, known) if whole else found[-1]["change"]
        return Changed([rows[row["kind"], row["id"]] for row in found], behind, position["active_leaf_id"] if position else None)

    async def prompt(self, session_uid: UUID, message_id: str) -> list[dict[str, Any]] | None:
        """The record of the prompt of a message's newest answer, with the texts; empty if there was none, None if there is no such message."""
        async with reading(self._database, snapshot=True) as conn:
            row = await sql.prompt_of(conn, session_uid=session_uid, message_id=message_id)
            if row is None:
                return None
            record: list[dict[str, Any]] = json.loads(row["prompt"]) if row["prompt"] else []
            hashes = [part["sha256"] for part in record]
            texts = {text["sha256"]: text["text"] async for text in sql.prompt_texts(conn, hashes=hashes)}
        return [{**part, "text": texts.get(part["sha256"])} for part in record]
