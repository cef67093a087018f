"""The newest part of a session's event log, read once for all its streams in this process.

However many readers a session has here, a committed event is read from Postgres once and made into bytes once. A tail holds what
followed some cursor without a gap (`since` to `head`), as far back as its bound allows. A reader whose cursor lies in that stretch takes
from it; one that is further back reads the table itself until it has caught up. Nothing is queued for a reader, so one that is slow
costs nobody anything: it falls behind, and reads the table.
"""

import asyncio
import logging
from bisect import bisect_right
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import assert_never
from uuid import UUID

from activities.db.events import Cursor, CursorExpired, Event, EventLog, Owned, Text
from activities.db.feed import Committed, Feed, Note, Reread, Streamed, Subscription
from api.frames import frame
from settings import Settings
from workflows.contracts.errors import ServiceUnavailable

TAIL_BYTES = 128 * 1024
"""What a tail keeps for readers that are a little behind. What one look at the table brought stays whole until the next."""

RETRY_SECONDS = 1.0
"""How soon the table is looked at again while Postgres is away."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """An event of the tail: the cursor behind it and its bytes.

    `text` is set if a reader may have a part of it already, `paused` if what is sent depends on who reads: the owner gets pause tokens.
    """

    ends: Cursor
    type: str
    turn_id: str | None
    frame: bytes
    text: Text | None = None
    paused: Event | None = None

    def behind(self, session_id: str, cursor: Cursor) -> bytes:
        """What of it a reader at `cursor` hasn't got, nothing if it has it all. The reader has everything before it."""
        if self.ends <= cursor:
            return b""
        text = self.text
        if text is None or cursor.seq < text.seq or cursor.position <= text.start:
            return self.frame
        rest = text.behind(cursor)
        return frame(session_id, rest) if rest else b""


class Tail:
    """A session's tail. `changed` is set, and replaced, when there is something new to look at; `ticks` counts the times for a comment.

    `existed`: the session is known to have had rows. `gone`: it was deleted. `failed`: nothing more will come, though there may be more.
    `owned`: whose the session is, None before its rows were seen.
    """

    def __init__(self, event_log: EventLog, session_id: str, session_uid: UUID, subscription: Subscription, keepalive: float) -> None:
        self.session_id = session_id
        self.session_uid = session_uid
        self.readers = 0
        self.changed = asyncio.Event()
        self.ticks = 0
        self.gone = False
        self.failed = False
        self.existed = False
        self.owned: Owned | None = None
        self._log = event_log
        self.subscription = subscription
        self._keepalive = keepalive
        self._since = self._head = Cursor()
        self._entries: list[Entry] = []
        self._size = 0
        self._behind = False
        self._erased = False
        self._given_away = False
        self._task: asyncio.Task[None] | None = None

    def join(self, cursor: Cursor) -> bool:
        """Whether a reader at `cursor` may go on from the tail. The first one begins it: from there on it is kept up to date."""
        if self._task is None:
            self._since = self._head = cursor
            self._task = asyncio.create_task(self._follow(), name="tail")
        return cursor >= self._since

    def after(self, cursor: Cursor) -> list[Entry] | None:
        """The entries that end behind `cursor`; None if something between was dropped."""
        if cursor < self._since:
            return None
        return self._entries[bisect_right(self._entries, cursor, key=_ends) :]

    async def know_owner(self) -> None:
        """Finds out whose the session is for a reader that comes, if that is not known. Raises ServiceUnavailable."""
        found = self.owned or await self._log.owned(self.session_uid)
        self.owned = self.owned or found  # what was found out meanwhile is newer

    async def _look_at_owner(self) -> bool:
        """Finds out whose the session is, and has every reader look if that is news. False if its rows are not there. Raises ServiceUnavailable."""
        found = await self._log.owned(self.session_uid)
        self._given_away = False
        if found is not None and found != self.owned:
            self.owned = found
            self.wake()
        return found is not None

    def wake(self) -> None:
        """Has every reader look."""
        self.changed.set()
        self.changed = asyncio.Event()

    def end(self) -> None:
        """The session was deleted: nothing more will come."""
        self.gone = True
        self.wake()

    def close(self) -> None:
        """Stops following the log."""
        if self._task is not None:
            self._task.cancel()

    async def _follow(self) -> None:
        try:
            await self._keep_up()
        except CursorExpired:
            self._fail()  # Postgres was away for longer than events are kept
        except Exception:
            log.exception("a tail of the event log failed")
            self._fail()

    def _fail(self) -> None:
        self.failed = True
        self.wake()

    async def _keep_up(self) -> None:
        clock = asyncio.get_running_loop().time
        tick = clock() + self._keepalive
        while not self.gone:
            retry = await self._catch_up() if self._behind else None
            note = await self.subscription.next(min(tick - clock(), retry or self._keepalive))
            self._take(note)
            if clock() >= tick:
                tick = clock() + self._keepalive
                self.ticks += 1
                self.wake()

    async def _catch_up(self) -> float | None:
        """Reads the table to its end. Answers after how many seconds to try again, if that is called for."""
        more = True
        try:
            if self._given_away:  # before what came later is shown
                await self._look_at_owner()
            while more:
                events, head, more = await self._log.after(self.session_uid, self._head)
                if events:
                    self._append(events)
                    self.existed = True
                elif not more and not await self._look_at_owner():
                    self.gone = self.existed or self._erased
                    self.wake()
                self._head = head
            self._behind = False
        except ServiceUnavailable:
            return RETRY_SECONDS
        return None

    def _take(self, note: Note | None) -> None:
        match note:
            case Streamed():
                self._take_text(note)
            case Committed(seq=seq):
                self._erased = self._erased or note.erased
                self._behind = self._behind or note.erased or seq > self._head.seq
            case Reread() | None:
                self._behind = self._given_away = True
            case _:
                assert_never(note)

    def _take_text(self, note: Streamed) -> None:
        """Appends the text that a note brings, if it is the next; otherwise the table is to be read."""
        if note.after_seq < self._head.seq:
            return
        if note.text is None:
            self._behind = True
            return
        at = datetime.fromisoformat(note.at)
        text = Text(note.after_seq, note.position, note.turn_id, note.segment, note.offset, note.kind, note.text, at)
        if text.ends <= self._head:
            return
        event = text.behind(self._head)
        if event is None:
            self._behind = True
        else:
            self._append([event])
            self._head = event.after

    def _append(self, events: list[Event]) -> None:
        dropped = 0
        while self._size > TAIL_BYTES:
            self._since = self._entries[dropped].ends
            self._size -= len(self._entries[dropped].frame)
            dropped += 1
        del self._entries[:dropped]
        for event in events:
            entry = Entry(
                event.after, event.type, event.turn_id, frame(self.session_id, event), event.text, event if event.pauses else None
            )
            self._entries.append(entry)
            self._size += len(entry.frame)
        self.wake()


def _ends(entry: Entry) -> Cursor:
    return entry.ends


class Tails:
    """The tails of the sessions that have readers in this process."""

    def __init__(self, event_log: EventLog, feed: Feed, settings: Settings) -> None:
        self._log = event_log
        self._feed = feed
        self._keepalive = settings.api.sse_keepalive_seconds
        self._tails: dict[UUID, Tail] = {}
        self.catching_up = asyncio.Semaphore(settings.database.pool_size // 2)
        """Held by a reader while it reads the table: a thousand that come back at once leave connections for everything else."""

    @asynccontextmanager
    async def attach(self, session_id: str, session_uid: UUID) -> AsyncIterator[Tail]:
        """The tail of a session, for one reader: it may join it, having read the table up to somewhere, and misses nothing then.

        Raises ServiceUnavailable if Postgres can't be listened to.
        """
        tail = self._tails.get(session_uid)
        if tail is None:
            subscription = self._feed.add(str(session_uid))
            tail = self._tails[session_uid] = Tail(self._log, session_id, session_uid, subscription, self._keepalive)
        tail.readers += 1
        try:
            await self._feed.until_listening()
            yield tail
        finally:
            tail.readers -= 1
            if not tail.readers:
                del self._tails[session_uid]
                tail.close()
                self._feed.remove(tail.subscription)

    @property
    def attached(self) -> int:
        """How many readers there are."""
        return sum(tail.readers for tail in self._tails.values())

    def wake(self) -> None:
        """Has every reader look: the process is about to end."""
        for tail in self._tails.values():
            tail.wake()
