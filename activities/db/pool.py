"""Connections to Postgres: how one is made, and the pool that a process shares."""

import asyncio
import getpass
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast
from urllib.parse import parse_qs, unquote, urlsplit

import asyncpg
from asyncpg.transaction import Transaction

from activities.db.errors import DRIVER_ERRORS, is_lost, unavailable
from settings import DatabaseSettings

_SESSION = {
    "application_name": "outlast",
    # Times in JSON that Postgres makes are written like all others, whatever the time zone of the database.
    "timezone": "UTC",
    # A process that vanished in the middle must not keep a session's row locked, nor a step's lock.
    "idle_in_transaction_session_timeout": "60s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
STATEMENTS = 512
"""Prepared statements that a connection keeps: more than there are in `sql/`."""

PING_SECONDS = 2.0
LEAVE_SECONDS = 1.0


def connect_options(settings: DatabaseSettings) -> dict[str, Any]:
    """Arguments for `asyncpg.connect`, complete, so that no `PG…` variable or password file adds to them (R14).

    A host that starts with `/` is a socket folder and an empty password is sent as none (R22). Raises ValueError if the URL is
    not one.
    """
    if not settings.url:
        raise ValueError("OUTLAST_DATABASE__URL is empty")
    url = urlsplit(settings.url)
    query = {key: values[-1] for key, values in parse_qs(url.query).items()}
    user = unquote(url.username or "") or query.get("user") or getpass.getuser()
    place = url.netloc.rpartition("@")[2] or query.get("host", "")
    options: dict[str, Any] = {"dsn": settings.url, "user": user, "timeout": settings.timeout_seconds}
    options["server_settings"] = {key: value for key, value in _SESSION.items() if key not in query}
    if not place:
        options["host"] = place = "localhost"
    if not _names_a_port(place) and "port" not in query:
        options["port"] = 5432
    if not url.password and "password" not in query:
        options["password"] = ""
    options["database"] = unquote(url.path.removeprefix("/")) or query.get("dbname") or query.get("database") or user
    if "sslmode" not in query:
        options["ssl"] = "disable" if unquote(place).startswith("/") else "prefer"
    if "sslnegotiation" not in query:
        options["direct_tls"] = False
    if "target_session_attrs" not in query:
        options["target_session_attrs"] = "any"
    return options


def _names_a_port(place: str) -> bool:
    return not place.startswith("/") and ":" in place.rpartition("]")[2]


async def connect(settings: DatabaseSettings, **changes: Any) -> asyncpg.Connection:
    """One connection outside any pool. Raises the driver's own errors, OSError and ValueError."""
    options = connect_options(settings) | {"command_timeout": settings.timeout_seconds} | changes
    return await asyncpg.connect(**options)


async def leave(connection: asyncpg.Connection) -> None:
    """Closes a connection, politely if the server still listens. Never raises."""
    try:
        await connection.close(timeout=LEAVE_SECONDS)
    except DRIVER_ERRORS:
        connection.terminate()


def _cut(connection: asyncpg.Connection) -> None:
    """Drops a pooled connection without a farewell, so that nobody waits for a server that does not answer."""
    with suppress(asyncpg.InterfaceError):  # the pool had noticed the loss before us
        connection.terminate()


async def _keep(connection: asyncpg.Connection) -> None:
    """Nothing to clean up between uses: session state is never changed on pooled connections. Saves a round trip per use."""


class Database:
    """The connection pool of a process. It connects when first used, and again by itself after Postgres was lost (R15)."""

    def __init__(self, pool: asyncpg.Pool, settings: DatabaseSettings) -> None:
        self.pool = pool
        self.settings = settings

    @classmethod
    async def open(cls, settings: DatabaseSettings) -> "Database":
        """A pool of at most `settings.pool_size` connections. Postgres need not be there yet. Raises ValueError for a malformed URL."""
        pool = asyncpg.create_pool(
            min_size=0,
            max_size=settings.pool_size,
            reset=_keep,
            command_timeout=settings.timeout_seconds,
            statement_cache_size=STATEMENTS,
            max_cached_statement_lifetime=0,
            **connect_options(settings),
        )
        return cls(await pool, settings)

    async def close(self) -> None:
        """Closes every connection; what is still in use after a moment, or can't be reached, is cut."""
        try:
            async with asyncio.timeout(LEAVE_SECONDS):
                await self.pool.close()
        except TimeoutError:
            self.pool.terminate()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection for statements that each commit by themselves.

        Raises ServiceUnavailable if Postgres is lost or does not answer within `settings.timeout_seconds`, be it while
        connecting or inside the block. Only database work belongs inside: a timeout or an OSError of anything else would
        count as Postgres's.
        """
        connection = await self._acquire()
        try:
            yield connection
        except Exception as error:
            if not is_lost(error):
                raise
            _cut(connection)
            raise unavailable(error) from error
        finally:
            await self._release(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection inside a transaction that commits at the end of the block and rolls back if the block raises.

        Raises as `connection` does; `maybe_happened` is set if the answer to the commit was lost.
        """
        async with self.connection() as connection:
            transaction = connection.transaction()
            await transaction.start()
            try:
                yield connection
            except BaseException as error:
                if not is_lost(error):
                    await self._roll_back(connection, transaction)
                raise
            try:
                await transaction.commit()
            except Exception as error:
                if not is_lost(error):
                    raise
                _cut(connection)
                raise unavailable(error, maybe_happened=True) from error

    async def ping(self, seconds: float = PING_SECONDS) -> None:
        """Returns if Postgres answers within `seconds`, else raises ServiceUnavailable (R16)."""
        async with self.connection() as connection:
            await connection.fetchval("select 1", timeout=seconds)

    async def _acquire(self) -> asyncpg.Connection:
        try:
            proxy = await self.pool.acquire(timeout=self.settings.timeout_seconds)
        except DRIVER_ERRORS as error:
            raise unavailable(error) from error  # refused credentials are an outage too once we had started
        return cast(asyncpg.Connection, proxy)

    async def _roll_back(self, connection: asyncpg.Connection, transaction: Transaction) -> None:
        try:
            await transaction.rollback()
        except Exception as error:
            if not is_lost(error):
                raise
            _cut(connection)  # which rolls back as well; what made us roll back is the error to report

    async def _release(self, connection: asyncpg.Connection) -> None:
        try:
            await self.pool.release(cast(Any, connection))
        except Exception as error:
            if not is_lost(error):
                raise


__all__ = ["Database", "connect", "connect_options", "leave"]
