"""Server-sent events of a session: a reader's way through the event log, from any cursor, and on with what comes.

Readers never touch a workflow. What a reader gets is decided by its cursor alone, so it may go on at any api process after any
crash; the feed only says when to look, and brings live text along so that the table need not be read for each delta.
"""

import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime
from typing import assert_never
from uuid import UUID

from starlette.responses import StreamingResponse
from starlette.types import Send

from activities.db.events import Cursor, Event, Text, TurnStart
from activities.db.feed import Committed, Note, Reread, Streamed
from api.deps import Api
from api.errors import RequestRefused
from workflows.contracts.errors import OutlastError, ServiceUnavailable

KEEPALIVE = b": keepalive\n\n"
RETRY_SECONDS = 1.0
"""How soon a stream looks again while Postgres is away."""

Start = Cursor | TurnStart

_ONE_LINE = {ord("\n"): " ", ord("\r"): " ", 0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"}
"""Line ends in JSON text are layout; the other three are characters of strings that some clients take for line ends."""


class StreamCut(OutlastError):
    """The stream ends here although there is more to come."""


class EventStream(StreamingResponse):
    """A stream of events. One that is cut ends without HTTP's own end mark, so that no reader takes it for whole (L3)."""

    media_type = "text/event-stream"

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        except StreamCut:
            return


def parse_start(last_event_id: str | None, after: str | None) -> Start:
    """Where a reader goes on: `Last-Event-ID` (a reconnecting reader's own) before `after`; neither: the session's beginning.

    Raises RequestRefused (422) for what is no cursor.
    """
    text = last_event_id if last_event_id is not None else after
    if text is None:
        return Cursor()
    start = Cursor.parse(text) or TurnStart.parse(text)
    if start is None:
        raise RequestRefused(422, f"{text!r} is not a cursor: take the id of an event, `before:<turn_id>`, or nothing for the beginning")
    return start


def event_stream(
    api: Api, session_id: str, session_uid: UUID, start: Start, *, until_turn: bool, headers: dict[str, str] | None = None
) -> EventStream:
    """The answer that sends a session's events from `start` on. `until_turn`: it ends after the first `turn.completed`."""
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})}
    return EventStream(_frames(api, session_id, session_uid, start, until_turn), headers=headers)


async def _frames(api: Api, session_id: str, session_uid: UUID, start: Start, until_turn: bool) -> AsyncIterator[bytes]:
    reader = _Reader(api, session_uid, start)
    try:
        async with aclosing(_events(api, session_uid, reader)) as events:
            async for event in events:
                if event is None:
                    yield KEEPALIVE
                    continue
                yield frame(session_id, event)
                if until_turn and event.type == "turn.completed":
                    return
    except ServiceUnavailable as error:
        raise StreamCut from error
    if until_turn and not reader.gone:
        raise StreamCut


def frame(session_id: str, event: Event) -> bytes:
    """An event as it is sent. Its `data` is the event's own members behind those that every event has."""
    head = {
        "type": event.type,
        "session_id": session_id,
        "turn_id": event.turn_id,
        "seq": event.after.seq,
        "at": event.at.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    }
    own = event.data.translate(_ONE_LINE).strip()[1:-1].strip()
    data = json.dumps(head)[:-1] + (f", {own}}}" if own else "}")
    return f"id: {event.after}\nevent: {event.type}\ndata: {data}\n\n".encode()


async def _events(api: Api, session_uid: UUID, reader: "_Reader") -> AsyncGenerator[Event | None]:
    """Events as the reader meets them, None now and then while there are none. Ends when the process stops or the session is gone."""
    async with api.feed.subscribe(str(session_uid)) as subscription:
        while not api.stopping.is_set():
            for event in await reader.read():
                yield event
            if reader.more:
                continue
            if reader.gone:
                return
            while not reader.behind and not api.stopping.is_set():
                note = await subscription.next(reader.patience)
                text = reader.take(note)
                if text is not None or note is None:
                    yield text


class _Reader:
    """A reader's place. `behind`: the table has, or may have, something for it. `gone`: the session was deleted, nothing will come."""

    def __init__(self, api: Api, session_uid: UUID, start: Start) -> None:
        self._api = api
        self._uid = session_uid
        self._turn = start if isinstance(start, TurnStart) else None
        self._cursor = start if isinstance(start, Cursor) else None
        self.behind = True
        self.more = False
        self.gone = False
        self._erased = False
        self.patience = api.settings.api.sse_keepalive_seconds

    async def read(self) -> list[Event]:
        """What the table has for the reader."""
        self.behind, self.more = False, False
        self.patience = self._api.settings.api.sse_keepalive_seconds
        try:
            return await self._read()
        except ServiceUnavailable:
            self.patience = min(RETRY_SECONDS, self.patience)
            return []

    async def _read(self) -> list[Event]:
        if self._cursor is None and self._turn is not None:
            self._cursor = await self._api.log.beginning_of(self._uid, self._turn)
        if self._cursor is None:
            self.gone = self._erased and not await self._api.log.exists(self._uid)
            return []
        events, self._cursor, self.more = await self._api.log.after(self._uid, self._cursor)
        if not events:
            self.gone = not await self._api.log.exists(self._uid)
        return events

    def take(self, note: Note | None) -> Event | None:
        """The text that a note brings, if it is the next; otherwise decides whether the table is to be read."""
        match note:
            case Streamed():
                return self._take_text(note)
            case Committed(seq=seq):
                self._erased = self._erased or note.erased
                self.behind = note.erased or self._cursor is None or seq > self._cursor.seq
            case Reread() | None:
                self.behind = True
            case _:
                assert_never(note)
        return None

    def _take_text(self, note: Streamed) -> Event | None:
        if self._cursor is None or note.after_seq < self._cursor.seq:
            return None
        if note.text is None:
            self.behind = True
            return None
        at = datetime.fromisoformat(note.at)
        text = Text(note.after_seq, note.position, note.turn_id, note.segment, note.offset, note.kind, note.text, at)
        if text.ends <= self._cursor:
            return None
        event = text.behind(self._cursor)
        if event is None:
            self.behind = True
        else:
            self._cursor = event.after
        return event
