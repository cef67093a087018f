"""Server-sent events of a session: a reader's way through the event log, from any cursor, and on with what comes.

Readers never touch a workflow. What a reader gets is decided by its cursor alone, so it may go on at any api process after any
crash. It reads the table until it has caught up, and then takes part in the session's tail, which is read once for all.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar
from uuid import UUID

from starlette.responses import StreamingResponse
from starlette.types import Send

from activities.db.events import Cursor, CursorExpired, Event, TurnStart
from api.access import may_see
from api.deps import Api
from api.errors import RequestRefused, not_found
from api.frames import KEEPALIVE, frame
from api.pause_tokens import event_with_tokens
from api.tails import RETRY_SECONDS, Entry, Tail
from workflows.contracts.errors import OutlastError, ServiceUnavailable
from workflows.model.session import Caller

CHUNK_BYTES = 32 * 1024
"""Frames are sent together up to this size."""

Start = Cursor | TurnStart
_E = TypeVar("_E", Event, Entry)


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
        finally:
            if isinstance(self.body_iterator, AsyncGenerator):
                await self.body_iterator.aclose()  # its reader is no reader from here on


def parse_start(last_event_id: str | None, after: str | None) -> Start | None:
    """Where a reader goes on: `Last-Event-ID` (a reconnecting reader's own) before `after`; None without either: the oldest event there is.

    Raises RequestRefused (422) for what is no cursor.
    """
    text = last_event_id if last_event_id is not None else after
    if text is None:
        return None
    start = Cursor.parse(text) or TurnStart.parse(text)
    if start is None:
        raise RequestRefused(422, f"{text!r} is not a cursor: take the id of an event, `before:<turn_id>`, or nothing for the beginning")
    return start


async def event_stream(
    api: Api,
    caller: Caller,
    session_id: str,
    session_uid: UUID,
    start: Start | None,
    *,
    until_turn: bool,
    headers: dict[str, str] | None = None,
) -> EventStream:
    """The answer that sends `caller` a session's events from `start` on (None: the oldest there is). `until_turn`: it ends after the first `turn.completed`.

    The first look at the log comes before the answer. Raises RequestRefused (410) if what followed `start` is gone, the refusal `not_found`
    if the session is, or is somebody else's, and ServiceUnavailable.
    """
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})}
    while True:
        chunks = _chunks(api, caller, session_id, session_uid, start, until_turn)
        try:
            await anext(chunks)
            return EventStream(chunks, headers=headers)
        except CursorExpired as expired:
            if start is not None:
                detail = f"the events that followed {start} were removed, because they were old; begin after {expired.oldest}, and read the messages for what came before"
                raise RequestRefused(410, detail, "cursor_expired", after=str(expired.oldest)) from expired
            start = expired.oldest  # more was removed just now


async def _chunks(
    api: Api, caller: Caller, session_id: str, session_uid: UUID, start: Start | None, until_turn: bool
) -> AsyncGenerator[bytes]:
    """Nothing, once the first look is taken; then the stream."""
    async with api.tails.attach(session_id, session_uid) as tail:
        await tail.know_owner()
        reader = _Reader(api, caller, tail, await api.log.oldest(session_uid) if start is None else start, until_turn)
        sent = await reader.next()
        if reader.lost:
            raise not_found()
        yield b""
        try:
            for chunk in _together(sent):
                yield chunk
            while not (reader.ended or tail.gone or tail.failed or api.stopping.is_set()):
                for chunk in _together(await reader.next()):
                    yield chunk
        except CursorExpired as error:  # it fell so far behind; when it comes back it is told
            raise StreamCut from error
        whole = reader.ended or tail.gone or not (until_turn or tail.failed)
    if not whole:
        raise StreamCut


def _together(frames: Iterable[bytes]) -> Iterator[bytes]:
    """Frames in chunks, so that many small ones cost one write, and none has to wait behind megabytes."""
    chunk: list[bytes] = []
    size = 0
    for one in frames:
        if size and size + len(one) > CHUNK_BYTES:
            yield b"".join(chunk)
            chunk, size = [], 0
        chunk.append(one)
        size += len(one)
    if chunk:
        yield chunk[0] if len(chunk) == 1 else b"".join(chunk)


class _Reader:
    """A reader's place. `ended`: the turn that it was for is over, or the session is somebody else's now."""

    def __init__(self, api: Api, caller: Caller, tail: Tail, start: Start, until_turn: bool) -> None:
        self._api = api
        self._caller = caller
        self._tail = tail
        self._until_turn = until_turn
        self._awaited = start if isinstance(start, TurnStart) else None
        self._cursor = start if isinstance(start, Cursor) else Cursor()
        self._caught_up = False
        self._ticks = tail.ticks
        self._refused = False
        self.ended = False
        tail.existed = tail.existed or self._awaited is None

    async def next(self) -> list[bytes]:
        """What is to be sent now; waits for it. Nothing: there is something else to look at first."""
        while not self.shut_out:
            if not self._caught_up:
                return await self._from_table()
            changed = self._tail.changed
            entries = self._tail.after(self._cursor)
            frames = None if entries is None else self._from_tail(entries) if entries else []
            if frames is None:
                self._caught_up = False
                return []
            if sent := frames or self._comment():
                return sent
            if self._tail.gone or self._tail.failed or self._api.stopping.is_set():
                return []
            await changed.wait()
        self.ended = True
        return []

    @property
    def shut_out(self) -> bool:
        """Whether the session was given to somebody else: who reads may not see it any more."""
        owned = self._tail.owned
        return owned is not None and not may_see(self._caller, owned.owner)

    @property
    def lost(self) -> bool:
        """Whether there is no such session for who reads: it was deleted, or given to somebody else."""
        return self._tail.gone or self.shut_out

    def _comment(self) -> list[bytes]:
        if self._ticks == self._tail.ticks:
            return []
        self._ticks = self._tail.ticks
        return [KEEPALIVE]

    async def _from_table(self) -> list[bytes]:
        try:
            async with self._api.tails.catching_up:
                if self._awaited is not None and not await self._find_turn(self._awaited):
                    self._caught_up = self._tail.join(self._cursor)
                    return []
                events, self._cursor, more = await self._api.log.after(self._tail.session_uid, self._cursor)
        except ServiceUnavailable:
            return await self._pause()
        self._caught_up = not more and self._tail.join(self._cursor)
        if self._refused and self._until_turn:
            self.ended = True
            return [self._frame(event) for event in events[:1]]
        return [self._frame(event) for event in self._up_to_the_end(events)]

    async def _find_turn(self, turn: TurnStart) -> bool:
        """Moves to the turn's beginning, or to the word that it will not come; to where the log ends now if there is neither."""
        found = await self._api.log.beginning_of(self._tail.session_uid, turn)
        self._cursor = found.begins or found.ends
        self._awaited = None if found.begins else turn
        self._refused = found.refused
        if found.erased:
            self._tail.end()
        return found.begins is not None

    async def _pause(self) -> list[bytes]:
        """Postgres is away: looks again in a while."""
        with suppress(TimeoutError):
            async with asyncio.timeout(RETRY_SECONDS):
                await self._api.stopping.wait()
        return self._comment()

    def _from_tail(self, entries: Sequence[Entry]) -> list[bytes] | None:
        """The frames of these entries; None if only the table can say where the awaited turn begins, or that it does not."""
        if self._awaited is not None:
            begins = self._place_of(self._awaited, entries)
            if begins is None and any(entry.type == "input.refused" for entry in entries):
                return None
            if begins is None:
                self._cursor = entries[-1].ends
                return []
            if self._awaited.attempt > 1:
                return None
            entries, self._awaited = entries[begins:], None
        frames = [self._frame_of(entry) for entry in self._up_to_the_end(entries)]
        self._cursor = entries[-1].ends
        return frames

    def _frame(self, event: Event) -> bytes:
        return frame(self._tail.session_id, event_with_tokens(self._api, self._caller, event))

    def _frame_of(self, entry: Entry) -> bytes:
        return self._frame(entry.paused) if entry.paused else entry.behind(self._tail.session_id, self._cursor)

    @staticmethod
    def _place_of(turn: TurnStart, entries: Sequence[Entry]) -> int | None:
        begun = (place for place, entry in enumerate(entries) if (entry.type, entry.turn_id) == ("turn.started", turn.turn_id))
        return next(begun, None)

    def _up_to_the_end(self, events: Sequence[_E]) -> Sequence[_E]:
        """The events that are to be sent: a stream of one turn ends with its end."""
        for place, event in enumerate(events):
            if self._until_turn and event.type == "turn.completed":
                self.ended = True
                return events[: place + 1]
        return events
