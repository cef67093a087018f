"""Notifications of committed rows and of streamed text, from one LISTEN connection to all readers of this process."""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from activities.db.errors import DRIVER_ERRORS, reason, unavailable
from activities.db.pool import connect, leave
from settings import DatabaseSettings

CHANNEL = "outlast"
"""The one NOTIFY channel. Payloads are JSON, `s` the session's uid."""

READER_LIMIT = 1000
"""Notes that wait for one reader before they are replaced by a single `Reread`."""

RETRY_SECONDS = (0.1, 0.2, 0.5, 1.0)
"""Pauses between attempts to connect; the last one repeats."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Committed:
    """Durable events up to `seq` are there to be read; 0: the session's rows are gone. `ends`: a turn's end may be among them, or a refusal."""

    seq: int
    ends: bool = True

    @property
    def erased(self) -> bool:
        """Whether it says that the session was removed."""
        return self.seq == 0


@dataclass(frozen=True, slots=True)
class Streamed:
    """Text of the live step: `position` code points after durable event `after_seq`, `offset` within its segment.

    `text` is None where it was too long for a notification; the row of live_deltas has it.
    """

    after_seq: int
    position: int
    turn_id: str
    segment: int
    offset: int
    kind: Literal["text", "thinking"]
    text: str | None
    at: str


@dataclass(frozen=True, slots=True)
class Reread:
    """Notes may be missing here, since the connection was lost or the reader is slow; or the session changed hands. Read the rows from where you are."""


Note = Committed | Streamed | Reread


def parse_note(data: dict[str, Any]) -> Note:
    """The note that a notification's JSON means. Raises KeyError if a member is missing."""
    if "e" in data:
        return Committed(data["e"], bool(data.get("f", True)))
    if "r" in data:
        return Reread()
    return Streamed(data["a"], data["p"], data["t"], data["g"], data["o"], data["k"], data.get("x"), data["at"])


class Subscription:
    """What one reader still has to take note of."""

    def __init__(self, session_uid: str) -> None:
        self.session_uid = session_uid
        self._notes: deque[Note] = deque()
        self._arrived = asyncio.Event()

    async def next(self, timeout: float | None = None) -> Note | None:
        """The next note; None if none came within `timeout` seconds."""
        if not self._notes:
            self._arrived.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._arrived.wait()
            except TimeoutError:
                return None
        return self._notes.popleft()

    def put(self, note: Note) -> None:
        """Appends a note; one too many, and all of them become a single `Reread`."""
        if isinstance(note, Reread) or len(self._notes) >= READER_LIMIT:
            self._notes.clear()
            note = Reread()
        self._notes.append(note)
        self._arrived.set()


class Feed:
    """One listening connection and its readers. Connects, and connects again, by itself."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self._settings = settings
        self._readers: dict[str, set[Subscription]] = {}
        self._listening = asyncio.Event()
        self._fault: BaseException = ConnectionError("not connected yet")
        self._task: asyncio.Task[None] | None = None

    @classmethod
    async def open(cls, settings: DatabaseSettings) -> "Feed":
        """A feed that begins to connect. Postgres need not be there yet."""
        feed = cls(settings)
        feed._task = asyncio.create_task(feed._keep_listening(), name="feed")
        return feed

    async def close(self) -> None:
        """Stops listening. Readers get nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def health(self) -> Literal["listening", "reconnecting", "closed"]:
        """`reconnecting`: notes are not arriving; readers will be told to re-read once they do."""
        if self._task is None or self._task.done():
            return "closed"
        return "listening" if self._listening.is_set() else "reconnecting"

    @asynccontextmanager
    async def subscribe(self, session_uid: str) -> AsyncIterator[Subscription]:
        """A reader of one session: everything that is committed from here on is noted.

        Raises ServiceUnavailable if Postgres can't be listened to within `settings.timeout_seconds`.
        """
        subscription = self.add(session_uid)
        try:
            await self.until_listening()
            yield subscription
        finally:
            self.remove(subscription)

    def add(self, session_uid: str) -> Subscription:
        """A reader of one session that notes what is committed once `until_listening` has returned, until it is removed."""
        subscription = Subscription(session_uid)
        self._readers.setdefault(session_uid, set()).add(subscription)
        return subscription

    def remove(self, subscription: Subscription) -> None:
        """The reader notes nothing more."""
        readers = self._readers[subscription.session_uid]
        readers.discard(subscription)
        if not readers:
            del self._readers[subscription.session_uid]

    def wake(self) -> None:
        """Tells every reader to look again."""
        for subscription in [one for readers in self._readers.values() for one in readers]:
            subscription.put(Reread())

    async def until_listening(self) -> None:
        """Returns once Postgres is listened to. Raises ServiceUnavailable if it isn't within `settings.timeout_seconds`."""
        if self._listening.is_set():
            return
        try:
            async with asyncio.timeout(self._settings.timeout_seconds):
                await self._listening.wait()
        except TimeoutError as error:
            raise unavailable(self._fault) from error

    async def _keep_listening(self) -> None:
        failures = 0
        while True:
            try:
                await self._listen()
                failures = 0
                await asyncio.sleep(RETRY_SECONDS[0])
            except DRIVER_ERRORS as error:
                if failures == 0:
                    log.warning("not listening to Postgres: %s", reason(error))
                self._fault = error
                await asyncio.sleep(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
                failures += 1

    async def _listen(self) -> None:
        """Listens until the connection is lost, which is noticed by its end or by a silent server. Raises the driver's errors if it can't begin."""
        connection = await connect(self._settings)
        lost = asyncio.Event()
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(CHANNEL, self._deliver)
            self._listening.set()
            self.wake()  # LISTEN first, then read: what was committed in between is in both
            while not await self._lost_within(lost, self._settings.timeout_seconds):
                await connection.fetchval("select 1")
        except DRIVER_ERRORS as error:
            if not self._listening.is_set():
                raise
            log.warning("stopped listening to Postgres: %s", reason(error))
        finally:
            self._listening.clear()
            await leave(connection)

    @staticmethod
    async def _lost_within(lost: asyncio.Event, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await lost.wait()
        except TimeoutError:
            return False
        return True

    def _deliver(self, _connection: object, _pid: int, _channel: str, payload: object) -> None:
        """Hands a notification to the readers of its session. One that is not ours is dropped: anybody may NOTIFY."""
        try:
            data = json.loads(str(payload))
            readers = self._readers.get(data["s"])
            if readers:
                note = parse_note(data)
                for subscription in readers:
                    subscription.put(note)
        except (ValueError, KeyError, TypeError) as error:
            log.warning("dropped a notification that is not one of ours: %s", reason(error))


__all__ = ["CHANNEL", "READER_LIMIT", "Committed", "Feed", "Note", "Reread", "Streamed", "Subscription", "parse_note"]
