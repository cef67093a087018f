"""A session's rows derived apart from the real ones, on a connection that sees both, and how the two are compared."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import asyncpg

from activities.db.errors import DRIVER_ERRORS, is_lost, unavailable
from activities.db.pool import connect, leave
from activities.db.queries import SQL, allowed, load_queries
from settings import DatabaseSettings
from workflows.contracts.errors import SetupError

owned = load_queries(SQL / "owner")

STATEMENT_SECONDS = 600.0
"""A statement may be about a whole session, which may be long."""

MOST_DIFFERENCES = 200
"""Rows of a table that a comparison answers."""


@dataclass(frozen=True)
class Relation:
    """A table that is derived: what its rows are known by within a session, and the columns that no history tells (docs/rebuild.md)."""

    name: str
    keys: tuple[str, ...]
    left_out: tuple[str, ...] = ()


RELATIONS = (
    Relation("sessions", ("session_id",), ("cursor", "feed", "events_from", "kind", "parent_uid")),
    Relation("branches", ("branch",)),
    Relation("messages", ("id",), ("change",)),
    Relation("segments", ("message_id", "position")),
    Relation("model_messages", ("message_id", "position"), ("library",)),
    Relation("turns", ("turn_id",), ("run", "triage")),
    Relation("steering", ("id",), ("change",)),
    Relation("steps", ("turn_id", "attempt", "step"), ("result",)),
    Relation("host_batches", ("turn_id", "step")),
    Relation("calls", ("call_id",)),
)


@dataclass(frozen=True)
class Difference:
    """What is wrong with a row. Where a comparison found it, its table and key are in `relation` and `key`, else both are in `place`."""

    what: str
    expected: str = ""
    found: str = ""
    relation: str = ""
    key: tuple[str, ...] = ()
    place: str = "-"

    @property
    def row(self) -> str:
        """Table and key, for people; `-` for what is wrong with no row."""
        return f"{self.relation} {'/'.join(self.key)}" if self.relation else self.place


class Shadow:
    """One connection for one session at a time. Raises ServiceUnavailable where Postgres is lost."""

    def __init__(self, conn: asyncpg.Connection) -> None:
        self.conn = conn

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: DatabaseSettings) -> "AsyncIterator[Shadow]":
        """Raises SetupError for a role that may not do this, ServiceUnavailable if Postgres is not there."""
        try:
            conn = await connect(settings)
        except DRIVER_ERRORS as error:
            raise unavailable(error) from error
        try:
            try:
                await owned.make_shadow(conn)
            except asyncpg.InsufficientPrivilegeError as error:
                raise SetupError(
                    f"this needs the role that owns the schema, and OUTLAST_DATABASE__URL names another one: {error}"
                ) from error
            yield cls(conn)
        finally:
            await leave(conn)

    @asynccontextmanager
    async def session(self, *, keep: bool) -> AsyncIterator[None]:
        """A transaction for one session, in which the shadow begins empty; it sees one moment, and is rolled back unless `keep`."""
        transaction = self.conn.transaction(isolation="read_committed" if keep else "repeatable_read")
        with allowed(STATEMENT_SECONDS):
            try:
                await transaction.start()
                try:
                    yield
                except BaseException:
                    await transaction.rollback()
                    raise
                await (transaction.commit() if keep else transaction.rollback())
            except Exception as error:
                if not is_lost(error):
                    raise
                raise unavailable(error) from error

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        """A part of the session's transaction: what raises inside is undone."""
        async with self.conn.transaction():
            yield self.conn

    async def differences(self, session_uid: UUID, library: str) -> list[Difference]:
        """Where the derived rows and the real ones differ. `library`: what requests are written with."""
        await owned.keep_underived(self.conn, session_uid=session_uid, library=library)
        await owned.keep_steering_numbers(self.conn, session_uid=session_uid)
        await owned.turn_numbers_back(self.conn, session_uid=session_uid)
        found: list[Difference] = []
        for relation in RELATIONS:
            found += await self._compared(relation, session_uid)
        return found

    async def _compared(self, relation: Relation, session_uid: UUID) -> list[Difference]:
        keys, left_out = list(relation.keys), list(relation.left_out)
        comparing = await owned.comparing(self.conn, relation=relation.name, keys=keys, left_out=left_out)
        rows = await self.conn.fetch(comparing["statement"], session_uid, MOST_DIFFERENCES, timeout=STATEMENT_SECONDS)
        return [difference for row in rows for difference in _of_row(relation, comparing["columns"], row)]

    async def replace(self, session_uid: UUID, found: list[Difference]) -> None:
        """Puts the derived rows where the real ones are. Readers of the feed see what changed again."""
        ids = [one.key[0] for one in found if one.relation in ("messages", "segments", "model_messages")]
        steering = [one.key[0] for one in found if one.relation == "steering"]
        await owned.number_changes(self.conn, session_uid=session_uid, ids=ids, steering=steering)
        await owned.forget_details(self.conn, session_uid=session_uid)
        await owned.forget_frame(self.conn, session_uid=session_uid)
        await owned.store_derived_rows(self.conn, session_uid=session_uid)
        cursor = (await owned.actual_session(self.conn, session_uid=session_uid))["cursor"]
        note = json.dumps({"s": str(session_uid), "e": cursor})
        await owned.store_derived_session(self.conn, session_uid=session_uid, note=note)

    async def close_gap(self, session_uid: UUID) -> int:
        """Events that are missing can't be derived: the stream begins behind them. Answers the last of them, 0 if none was missing."""
        gap: int = await owned.event_gap(self.conn, session_uid=session_uid)
        if gap:
            await owned.close_event_gap(self.conn, session_uid=session_uid, gap=gap)
        return gap


def _of_row(relation: Relation, columns: list[str], row: Any) -> list[Difference]:
    key = tuple(row["key"])
    if not row["there"]:
        return [Difference("lost row", "a row", "none", relation.name, key)]
    if not row["derived"]:
        return [Difference("row that no history made", "none", "a row", relation.name, key)]
    return [
        Difference(f"wrong {column}", _said(expected), _said(found), relation.name, key)
        for column, expected, found in zip(columns, row["expected"], row["found"], strict=True)
        if expected != found
    ]


def _said(value: str | None) -> str:
    return "null" if value is None else value


__all__ = ["RELATIONS", "Difference", "Relation", "Shadow", "owned"]
