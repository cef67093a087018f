"""Locks of steps: one runner at a time, in one process and across processes that die."""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from activities.db.locks import POLL_SECONDS, StepLocks
from activities.db.pool import Database
from cli.services.postgres import PostgresServer
from settings import DatabaseSettings
from tests.services import PATIENCE_SECONDS
from workflows.contracts.errors import ServiceUnavailable

AT_ONCE = 8.0
"""Seconds: more than a busy machine takes to notice that a process has died, and much less than connections take to be given up."""

FREE = "select pg_try_advisory_lock(hashtextextended($1, 0)) and pg_advisory_unlock(hashtextextended($1, 0))"
HOLDER = """
import asyncio, sys
from activities.db.locks import StepLocks
from settings import DatabaseSettings

async def main():
    locks = await StepLocks.open(DatabaseSettings(url=sys.argv[1]))
    async with locks.hold("step"):
        print("held", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


@asynccontextmanager
async def opened(settings: DatabaseSettings) -> AsyncIterator[StepLocks]:
    locks = await StepLocks.open(settings)
    try:
        yield locks
    finally:
        await locks.close()


@pytest.fixture
async def locks(migrated: DatabaseSettings) -> AsyncIterator[StepLocks]:
    async with opened(migrated) as locks:
        yield locks


@pytest.fixture
async def other(migrated: DatabaseSettings) -> AsyncIterator[StepLocks]:
    """The locks of what might as well be another process: only Postgres is between them."""
    async with opened(migrated) as locks:
        yield locks


async def is_free(database: Database, key: str) -> bool:
    async with database.connection() as connection:
        return bool(await connection.fetchval(FREE, key))


async def until_free(database: Database, key: str, seconds: float = PATIENCE_SECONDS) -> None:
    began = time.monotonic()
    while not await is_free(database, key):
        assert time.monotonic() - began < seconds, f"{key} is still locked"
        await asyncio.sleep(0.002)


async def until_held(database: Database, key: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await is_free(database, key):
            await asyncio.sleep(0.05)


async def test_one_holder_at_a_time(locks: StepLocks, other: StepLocks, database: Database) -> None:
    inside = 0

    async def use(which: StepLocks) -> None:
        nonlocal inside
        async with which.hold("step"):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.01)
            inside -= 1

    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*(use(which) for _ in range(10) for which in (locks, other)))
    await until_free(database, "step")


async def test_different_steps_do_not_wait_for_each_other(locks: StepLocks) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS), locks.hold("one"), locks.hold("two"), locks.hold("three"):
        pass


async def test_waiting_ends_when_its_time_is_up(locks: StepLocks, other: StepLocks, database: Database) -> None:
    async with locks.hold("step"):
        for waiting in (locks, other):
            with pytest.raises(TimeoutError):
                async with waiting.hold("step", wait=0.2):
                    pytest.fail("held twice")
        assert not await is_free(database, "step")
    await until_free(database, "step")


@asynccontextmanager
async def other_process(settings: DatabaseSettings) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that holds the lock `step`, until it is killed."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLDER, settings.url, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"held\n"
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def test_r88_the_lock_of_a_killed_process_is_free_at_once(migrated: DatabaseSettings, database: Database) -> None:
    async with other_process(migrated) as holder:
        assert not await is_free(database, "step")
        holder.kill()
        await until_free(database, "step", AT_ONCE)


async def test_r88_who_waits_for_a_process_that_dies_goes_on(locks: StepLocks, migrated: DatabaseSettings) -> None:
    async with other_process(migrated) as holder:
        with pytest.raises(TimeoutError):
            async with locks.hold("step", wait=2 * POLL_SECONDS):
                pytest.fail("held twice")
        began = time.monotonic()
        asyncio.get_running_loop().call_later(0.3, holder.kill)
        async with locks.hold("step"):
            assert 0.25 < time.monotonic() - began < 0.3 + POLL_SECONDS + AT_ONCE


async def test_r15_a_lost_connection_keeps_what_is_held(locks: StepLocks, other: StepLocks, database: Database) -> None:
    async with locks.hold("one"), locks.hold("two"):
        async with database.connection() as connection:
            await connection.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where datname = current_database() and query ilike '%try_advisory%' and pid <> pg_backend_pid()"
            )
        await until_held(database, "one")
        await until_held(database, "two")
        with pytest.raises(TimeoutError):
            async with other.hold("two", wait=0.5):
                pytest.fail("held twice")
    await until_free(database, "one")
    await until_free(database, "two")


async def test_r15_postgres_lost_and_back(bare_postgres: PostgresServer) -> None:
    settings = DatabaseSettings(url=bare_postgres.url("postgres"), timeout_seconds=1)
    database = await Database.open(settings)
    async with opened(settings) as locks:
        async with locks.hold("kept"):
            await asyncio.to_thread(bare_postgres.stop)
            with pytest.raises(ServiceUnavailable):
                async with locks.hold("new"):
                    pytest.fail("there is nobody to lock with")
            bare_postgres.start()
            await until_held(database, "kept")
        async with asyncio.timeout(PATIENCE_SECONDS), locks.hold("new"):
            assert not await is_free(database, "new")
    await database.close()


async def test_r16_a_server_that_hangs(bare_postgres: PostgresServer) -> None:
    settings = DatabaseSettings(url=bare_postgres.url("postgres"), timeout_seconds=1)
    async with opened(settings) as locks:
        async with locks.hold("kept"):
            bare_postgres.signal(signal.SIGSTOP)
            began = time.monotonic()
            with pytest.raises(ServiceUnavailable):
                async with locks.hold("new"):
                    pytest.fail("there is nobody to lock with")
            assert time.monotonic() - began < AT_ONCE
            bare_postgres.signal(signal.SIGCONT)
        async with asyncio.timeout(PATIENCE_SECONDS), locks.hold("kept"):
            pass
