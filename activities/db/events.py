"""The event log of a session, read from any point: durable events, and between them the text as it was streamed.

A cursor `"<seq>.<position>"` means: everything up to durable event `seq`, and `position` code points of the deltas that followed
it. It stays valid after the deltas are gone, because a row of type `text` then says which characters they were.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg

from activities.db.pauses import Pause, pauses_of, shown_calls
from activities.db.pool import Database
from activities.db.reads import reading, sql
from workflows.contracts.errors import OutlastError

PAGE = 200
PAGE_BYTES = 256 * 1024
"""What one read takes at most: so many durable events, or as many as are in so many stored bytes and the one that goes over."""

_CURSOR = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,9}))?")
_TURN_START = re.compile(r"before:([A-Za-z0-9._:-]{1,64})(?:@([0-9]{1,9}))?")


class Cursor(NamedTuple):
    """A point in a session's event log."""

    seq: int = 0
    position: int = 0

    def __str__(self) -> str:
        return f"{self.seq}.{self.position}"

    @classmethod
    def parse(cls, text: str) -> "Cursor | None":
        """The cursor that `text` writes, None if it writes none."""
        match = _CURSOR.fullmatch(text)
        return cls(int(match[1]), int(match[2] or 0)) if match else None


class TurnStart(NamedTuple):
    """The point just before a turn's newest attempt, which may not have come yet. Written `before:<turn_id>`, with `@<attempt>` for a repeat."""

    turn_id: str
    attempt: int = 1

    def __str__(self) -> str:
        return f"before:{self.turn_id}" if self.attempt == 1 else f"before:{self.turn_id}@{self.attempt}"

    @classmethod
    def parse(cls, text: str) -> "TurnStart | None":
        """The point that `text` writes, None if it writes none."""
        match = _TURN_START.fullmatch(text)
        return cls(match[1], int(match[2] or 1)) if match else None


@dataclass(frozen=True, slots=True)
class Event:
    """One event as a reader gets it. `after` is the cursor behind it, `data` its own members as the text of a JSON object.

    `text` says where streamed characters stand, of which a reader may have some already. `pauses` are the host calls that it shows, as
    pause tokens are bound to them.
    """

    after: Cursor
    type: str
    turn_id: str | None
    at: datetime
    data: str
    text: "Text | None" = None
    pauses: Mapping[str, Pause] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Text:
    """Streamed characters of one segment, `start` code points behind durable event `seq`."""

    seq: int
    start: int
    turn_id: str | None
    segment: int
    offset: int
    kind: str
    text: str
    at: datetime

    @property
    def ends(self) -> Cursor:
        """The cursor behind it."""
        return Cursor(self.seq, self.start + len(self.text))

    def behind(self, cursor: Cursor) -> Event | None:
        """What of it a reader at `cursor` hasn't got; None if it has it all, or if something before it is missing."""
        skip = cursor.position - self.start
        if cursor.seq != self.seq or not 0 <= skip < len(self.text):
            return None
        rest = replace(self, start=self.start + skip, offset=self.offset + skip, text=self.text[skip:]) if skip else self
        data = json.dumps({"text": rest.text, "offset": rest.offset, "segment": rest.segment}, ensure_ascii=False)
        return Event(self.ends, f"{self.kind}.delta", self.turn_id, self.at, data, rest)


class CursorExpired(OutlastError):
    """What followed a cursor was removed because it was old. From `oldest` on events are there."""

    def __init__(self, oldest: Cursor) -> None:
        super().__init__(f"the events behind the cursor were removed; the oldest ones that are left follow {oldest}")
        self.oldest = oldest


@dataclass(frozen=True, slots=True)
class Beginning:
    """The cursor before a turn's first event (None: it has not begun), and the one behind the session's newest event.

    `refused`: the turn will not come, and its first event is the word about that. `erased`: nothing will come of this session.
    """

    begins: Cursor | None
    ends: Cursor
    refused: bool = False
    erased: bool = False


class Owned(NamedTuple):
    """A session that is there, and who owns it (None: only admins see it)."""

    owner: str | None


class EventLog:
    """Reads of session event logs. Nothing here touches a workflow."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def beginning_of(self, session_uid: UUID, turn: TurnStart) -> Beginning:
        """Where the events of a turn's newest attempt begin, if it has started or the rows refused it.

        Raises CursorExpired if the turn is over and its events were removed.
        """
        async with reading(self._database) as conn:
            row = await sql.turn_begins(conn, session_uid=session_uid, turn_id=turn.turn_id, attempt=turn.attempt)
        begins = None if row["begins"] is None else Cursor(row["begins"] - 1)
        if row["over"] and (begins is None or begins.seq < row["events_from"]):
            raise CursorExpired(Cursor(row["events_from"]))
        refused = begins is None and row["refused"] is not None
        return Beginning(Cursor(row["refused"] - 1) if refused else begins, Cursor(row["ends"]), refused, row["erased"])

    async def oldest(self, session_uid: UUID) -> Cursor:
        """The cursor that the oldest event follows which is left."""
        async with reading(self._database) as conn:
            return await _oldest(conn, session_uid)

    async def owned(self, session_uid: UUID) -> Owned | None:
        """Whose the session is now, None if its rows are not there."""
        async with reading(self._database) as conn:
            row = await sql.session_owner(conn, session_uid=session_uid)
        return None if row is None else Owned(row["owner"])

    async def after(self, session_uid: UUID, cursor: Cursor) -> tuple[list[Event], Cursor, bool]:
        """What follows `cursor`: events, the cursor behind them, and whether more may be read at once. Raises CursorExpired."""
        async with reading(self._database) as conn:
            rows = [row async for row in sql.events_after(conn, session_uid=session_uid, seq=cursor.seq, count=PAGE, bytes=PAGE_BYTES)]
            streamed = await _streamed(conn, session_uid, [row for row in rows if row["type"] == "text"])
            if rows and rows[0]["seq"] > cursor.seq + 1:  # numbers have no gaps
                raise CursorExpired(await _oldest(conn, session_uid))
            events, cursor = _durable(rows, streamed, cursor)
            events = await _with_pauses(conn, session_uid, events)
            if len(rows) == PAGE or sum(row["size"] for row in rows) >= PAGE_BYTES:
                return events, cursor, True
            live = sql.live_text_after(conn, session_uid=session_uid, after_seq=cursor.seq, position=cursor.position)
            async for row in live:
                if event := _live(row, cursor).behind(cursor):
                    events.append(event)
                    cursor = event.after
            if not events and (oldest := await _oldest(conn, session_uid)).seq > cursor.seq:
                raise CursorExpired(oldest)
        return events, cursor, False


async def _oldest(conn: asyncpg.Connection, session_uid: UUID) -> Cursor:
    return Cursor(await sql.events_from(conn, session_uid=session_uid) or 0)


async def _with_pauses(conn: asyncpg.Connection, session_uid: UUID, events: list[Event]) -> list[Event]:
    shown = {event.after: shown_calls(event.type, event.data) for event in events}
    asked = {call_id for call_ids in shown.values() for call_id in call_ids}
    if not asked:
        return events
    pauses = await pauses_of(conn, session_uid, asked)
    found = {after: {call_id: pauses[call_id] for call_id in call_ids if call_id in pauses} for after, call_ids in shown.items()}
    return [replace(event, pauses=found[event.after]) if found[event.after] else event for event in events]


def _durable(rows: list[asyncpg.Record], streamed: dict[int, list[Text]], cursor: Cursor) -> tuple[list[Event], Cursor]:
    events: list[Event] = []
    for row in rows:
        if row["type"] == "text":
            for text in streamed[row["seq"]]:
                if event := text.behind(cursor):
                    events.append(event)
                    cursor = event.after
            cursor = Cursor(row["seq"])
            continue
        cursor = Cursor(row["seq"])
        events.append(Event(cursor, row["type"], row["turn_id"], row["at"], row["data"]))
    return events, cursor


def _live(row: asyncpg.Record, cursor: Cursor) -> Text:
    return Text(
        cursor.seq, row["position"], row["turn_id"], row["segment"], row["start_offset"], row["kind"], row["text"], datetime.now(UTC)
    )


async def _streamed(conn: asyncpg.Connection, session_uid: UUID, rows: list[asyncpg.Record]) -> dict[int, list[Text]]:
    """The characters that `text` rows stand for, by their number."""
    parts = [(row, data["message_id"], part) for row in rows for data in [json.loads(row["data"])] for part in data["parts"]]
    named = [(message_id, part) for _, message_id, part in parts if part.get("text") is None]
    stored: Iterator[str] = iter(())
    if named:
        cut = sql.stored_text(
            conn,
            session_uid=session_uid,
            message_ids=[message_id for message_id, _ in named],
            segments=[part["segment"] for _, part in named],
            offsets=[part["offset"] for _, part in named],
            lengths=[part["length"] for _, part in named],
        )
        stored = iter([row["text"] async for row in cut])
    texts: dict[int, list[Text]] = {row["seq"]: [] for row in rows}
    for row, _, part in parts:
        text = part.get("text")
        _append(texts[row["seq"]], row, part, next(stored, "") if text is None else text)
    return texts


def _append(texts: list[Text], row: asyncpg.Record, part: dict[str, Any], text: str) -> None:
    start = texts[-1].start + len(texts[-1].text) if texts else 0
    texts.append(Text(row["seq"] - 1, start, row["turn_id"], part["segment"], part["offset"], part["kind"], text, row["at"]))
