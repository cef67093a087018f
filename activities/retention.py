"""Events that are old enough are removed, by one worker at a time.

What a session said and did is in its messages; its events are how it was told. They go as a whole from the oldest on, never in the
middle of a turn, and `sessions.events_from` says up to where, so that a reader who comes from before is told instead of missing something.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

from activities.db.locks import StepLocks
from activities.db.pool import Database
from activities.db.queries import load_queries
from settings import Settings
from workflows.contracts.errors import ServiceUnavailable

LOCK = "event retention"
LOCK_SECONDS = 1.0
"""How long a worker waits for the one that is at it before it leaves it the round."""

ROUNDS = 20
"""Rounds in the time that events are kept: so they go at most a twentieth of it late,"""
LONGEST_PAUSE_SECONDS = 3600.0
"""and at most this."""

SESSIONS = 500
EVENTS = 5000
"""How many are looked at, and removed, at once: what others wait for is never long."""

NO_UID = UUID(int=0)
log = logging.getLogger(__name__)
sql = load_queries()


class EventRetention:
    """Removes events older than `hours`."""

    def __init__(self, database: Database, hours: float) -> None:
        self._database = database
        self._kept = timedelta(hours=hours)

    @property
    def pause(self) -> float:
        """Seconds between two rounds."""
        return min(LONGEST_PAUSE_SECONDS, self._kept.total_seconds() / ROUNDS)

    async def sweep(self) -> int:
        """One round over all sessions; how many events it removed. Raises ServiceUnavailable."""
        before, behind, removed, more = datetime.now(UTC) - self._kept, NO_UID, 0, True
        while more:
            async with self._database.connection() as conn:
                page = [row async for row in sql.sessions_with_old_events(conn, before=before, behind=behind, count=SESSIONS)]
            for row in page:
                removed += await self._sweep_session(row["session_uid"], before) if row["old"] else 0
            more = len(page) == SESSIONS
            behind = page[-1]["session_uid"] if page else behind
        return removed

    async def _sweep_session(self, session_uid: UUID, before: datetime) -> int:
        """First the word that they are gone, then their rows: in between they are read by nobody."""
        removed, last = 0, EVENTS
        async with self._database.connection() as conn:
            await sql.forget_events(conn, session_uid=session_uid, before=before)
            while last == EVENTS:
                last = await sql.remove_events(conn, session_uid=session_uid, count=EVENTS)
                removed += last
        return removed


@asynccontextmanager
async def retaining_events(settings: Settings, database: Database, locks: StepLocks) -> AsyncIterator[None]:
    """Removes old events for as long as the block lasts, if the settings ask for it."""
    if not settings.events.retention_hours:
        yield
        return
    task = asyncio.create_task(_keep_sweeping(EventRetention(database, settings.events.retention_hours), locks), name="event retention")
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _keep_sweeping(retention: EventRetention, locks: StepLocks) -> None:
    while True:
        try:
            async with locks.hold(LOCK, wait=LOCK_SECONDS):
                await retention.sweep()
        except (TimeoutError, ServiceUnavailable):
            log.debug("left a round of event retention out")
        except Exception:
            log.exception("a round of event retention failed")
        await asyncio.sleep(retention.pause)
