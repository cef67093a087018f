"""Locks that keep a living step from being repeated by another process (within one, `activities.running` does).

Temporal runs an activity again when its worker was silent for too long, be the worker dead or only cut off. A step therefore
runs under a lock that Postgres keeps for as long as the connection of its process lives: it is free within milliseconds of the
process's death, and not before.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg

from activities.db.errors import DRIVER_ERRORS, reason, unavailable
from activities.db.pool import connect, leave
from activities.db.queries import load_queries
from settings import DatabaseSettings

POLL_SECONDS = 0.3
"""How often a lock that another process holds is asked for."""

log = logging.getLogger(__name__)
sql = load_queries()


class StepLocks:
    """The locks of one process: one connection for all of them.

    One task keeps what is locked in step with what is wanted. When the connection is lost it opens another one and takes every lock
    that is still held again; only a process that asked in that very moment could come between, and then the rows decide.
    """

    def __init__(self, settings: DatabaseSettings) -> None:
        self._settings = settings
        self._wanted: dict[str, deque[asyncio.Future[None]]] = {}  # the first of each has the lock, or will have it next
        self._owned: set[str] = set()
        self._changed = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._connection: asyncpg.Connection | None = None

    @classmethod
    async def open(cls, settings: DatabaseSettings) -> "StepLocks":
        """Locks that connect when the first one is wanted. Postgres need not be there yet."""
        locks = cls(settings)
        locks._keeper = asyncio.create_task(locks._keep(), name="step locks")
        return locks

    async def close(self) -> None:
        """Gives every lock back, held or not."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        if self._connection is not None:
            await leave(self._connection)

    @asynccontextmanager
    async def hold(self, key: str, wait: float | None = None) -> AsyncIterator[None]:
        """Holds the lock `key` for the block, alone in all processes.

        Waits up to `wait` seconds for its holder (None: for ever) and then raises TimeoutError. Raises ServiceUnavailable if
        Postgres is lost before the lock is held; afterwards the block goes on.
        """
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wanted.setdefault(key, deque()).append(turn)
        self._changed.set()
        try:
            async with asyncio.timeout(wait):
                await turn
            yield
        finally:
            queue = self._wanted[key]
            queue.remove(turn)
            if not queue:
                del self._wanted[key]
            self._changed.set()

    async def _keep(self) -> None:
        while True:
            self._changed.clear()
            try:
                if self._owned != self._wanted.keys():
                    await self._settle(await self._connected())
                elif self._owned and self._connection is not None:
                    await self._connection.fetchval("select 1")
            except DRIVER_ERRORS as error:
                await self._lose(error)
            self._grant()
            await self._pause()

    async def _pause(self) -> None:
        """Until something changes, or it is time to ask again: soon for a lock that is missing, later for a sign of life."""
        missing = self._wanted.keys() - self._owned
        try:
            async with asyncio.timeout(POLL_SECONDS if missing else self._settings.timeout_seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _connected(self) -> asyncpg.Connection:
        if self._connection is None:
            connection = await connect(self._settings)
            connection.add_termination_listener(self._ended)
            self._connection = connection
        return self._connection

    def _ended(self, connection: object) -> None:
        if connection is self._connection:
            self._connection, self._owned = None, set()
            self._changed.set()

    async def _settle(self, connection: asyncpg.Connection) -> None:
        """Gives back what nobody wants any more and asks for what is missing."""
        surplus = list(self._owned - self._wanted.keys())
        if surplus:
            self._owned -= set(surplus)
            async for _ in sql.free_locks(connection, keys=surplus):
                pass
        missing = list(self._wanted.keys() - self._owned)
        if missing:
            self._owned |= {row["key"] async for row in sql.try_locks(connection, keys=missing) if row["taken"]}

    def _grant(self) -> None:
        """Wakes whoever is first in line for a lock that is ours."""
        for key in self._owned & self._wanted.keys():
            if not self._wanted[key][0].done():
                self._wanted[key][0].set_result(None)

    async def _lose(self, error: Exception) -> None:
        """The connection is gone, its locks with it. Holders keep their claim; those who still wait are told."""
        if self._connection is not None or self._owned:
            log.warning("the connection of the step locks is lost: %s", reason(error))
        lost, self._connection, self._owned = self._connection, None, set()
        for queue in self._wanted.values():
            for turn in queue:
                if not turn.done():
                    turn.set_exception(unavailable(error))
        if lost is not None:
            await leave(lost)


__all__ = ["POLL_SECONDS", "StepLocks"]
