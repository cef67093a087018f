"""The pool: Postgres lost, back, and hanging."""

import asyncio
import signal
import time

import asyncpg
import pytest

from activities.db.pool import Database
from cli.services.postgres import PostgresServer
from settings import DatabaseSettings
from tests.services import PATIENCE_SECONDS
from workflows.contracts.errors import ServiceUnavailable


async def use(database: Database) -> int:
    async with database.connection() as connection:
        value: int = await connection.fetchval("select 1")
    return value


async def until_asleep(url: str, sleepers: int) -> None:
    """Waits until Postgres is in the middle of so many statements that sleep."""
    look = await asyncpg.connect(url)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (
            await look.fetchval("select count(*) from pg_stat_activity where wait_event = 'PgSleep' and datname = current_database()")
            < sleepers
        ):
            await asyncio.sleep(0.02)
    await look.close()


async def test_r15_lost_then_back(bare_postgres: PostgresServer) -> None:
    database = await Database.open(DatabaseSettings(url=bare_postgres.url("postgres")))
    await asyncio.gather(*(use(database) for _ in range(5)))
    await asyncio.to_thread(bare_postgres.stop)
    for _ in range(3):
        with pytest.raises(ServiceUnavailable) as caught:
            await use(database)
        assert caught.value.service == "database"
    bare_postgres.start()
    assert await asyncio.gather(*(use(database) for _ in range(20))) == [1] * 20
    await database.close()


async def test_r15_opened_before_postgres_is_there(bare_postgres: PostgresServer) -> None:
    await asyncio.to_thread(bare_postgres.stop)
    database = await Database.open(DatabaseSettings(url=bare_postgres.url("postgres")))
    with pytest.raises(ServiceUnavailable):
        await use(database)
    bare_postgres.start()
    assert await use(database) == 1
    await database.close()


async def test_r15_killed_in_the_middle_of_statements(bare_postgres: PostgresServer) -> None:
    database = await Database.open(DatabaseSettings(url=bare_postgres.url("postgres")))

    async def sleep() -> None:
        async with database.transaction() as connection:
            await connection.execute("select pg_sleep(60)")

    asleep = [asyncio.create_task(sleep()) for _ in range(4)]
    await until_asleep(bare_postgres.url("postgres"), 4)
    bare_postgres.signal(signal.SIGKILL)
    results = await asyncio.gather(*asleep, return_exceptions=True)
    assert [type(result) for result in results] == [ServiceUnavailable] * 4
    bare_postgres.start()
    assert await use(database) == 1
    await database.close()


async def test_r16_a_server_that_hangs_is_unavailable_in_time(bare_postgres: PostgresServer) -> None:
    limit = 2.0
    database = await Database.open(DatabaseSettings(url=bare_postgres.url("postgres"), timeout_seconds=limit))
    await asyncio.gather(*(use(database) for _ in range(3)))

    async def hang_in_a_transaction() -> None:
        async with database.transaction() as connection:
            await connection.execute("select 1")

    bare_postgres.signal(signal.SIGSTOP)
    began = time.monotonic()
    results = await asyncio.gather(
        database.ping(limit), use(database), hang_in_a_transaction(), *(use(database) for _ in range(20)), return_exceptions=True
    )
    assert {type(result) for result in results} == {ServiceUnavailable}
    assert time.monotonic() - began < 5 * limit, "not one after the other"
    bare_postgres.signal(signal.SIGCONT)
    assert await asyncio.gather(*(use(database) for _ in range(20))) == [1] * 20
    await database.close()


async def test_r16_ping(bare_postgres: PostgresServer) -> None:
    database = await Database.open(DatabaseSettings(url=bare_postgres.url("postgres")))
    await database.ping()
    bare_postgres.signal(signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(ServiceUnavailable):
        await database.ping(0.3)
    assert time.monotonic() - began < 0.8 * database.settings.timeout_seconds
    await asyncio.wait_for(database.close(), PATIENCE_SECONDS)
    bare_postgres.signal(signal.SIGCONT)


async def test_a_busy_pool_is_unavailable_in_time(database: Database) -> None:
    few = await Database.open(database.settings.model_copy(update={"pool_size": 2, "timeout_seconds": 1.5}))
    async with few.connection(), few.connection():
        with pytest.raises(ServiceUnavailable):
            await use(few)
    assert await use(few) == 1
    await few.close()


async def test_a_wrong_statement_is_no_outage(database: Database) -> None:
    with pytest.raises(asyncpg.UndefinedTableError):
        async with database.connection() as connection:
            await connection.fetch("select * from nowhere")
    with pytest.raises(asyncpg.DataError):
        async with database.connection() as connection:
            await connection.fetchval("select $1::integer", "one")
    with pytest.raises(asyncpg.InterfaceError, match="another operation"):
        async with database.connection() as connection:
            await asyncio.gather(connection.fetchval("select pg_sleep(0.1)"), connection.fetchval("select 1"))


async def test_a_transaction_is_all_or_nothing(database: Database) -> None:
    insert = "insert into prompt_snapshots (sha256, text, created_at) values ($1, '', now())"
    async with database.transaction() as connection:
        await connection.execute(insert, "kept")
    with pytest.raises(KeyError):
        async with database.transaction() as connection:
            await connection.execute(insert, "dropped")
            raise KeyError
    with pytest.raises(ServiceUnavailable):
        async with database.transaction() as connection:
            await connection.execute(insert, "cut")
            await connection.execute("select pg_terminate_backend(pg_backend_pid())")
    async with database.connection() as connection:
        assert [row["sha256"] for row in await connection.fetch("select sha256 from prompt_snapshots")] == ["kept"]


async def test_a_lost_answer_to_a_commit_is_told(bare_postgres: PostgresServer) -> None:
    database = await Database.open(DatabaseSettings(url=bare_postgres.url("postgres"), timeout_seconds=1.5))
    with pytest.raises(ServiceUnavailable) as caught:
        async with database.transaction() as connection:
            await connection.execute("create table witness ()")
            bare_postgres.signal(signal.SIGSTOP)
    assert caught.value.maybe_happened
    bare_postgres.signal(signal.SIGCONT)
    await database.close()


async def test_a_cancelled_statement_frees_its_connection(database: Database) -> None:
    one = await Database.open(database.settings.model_copy(update={"pool_size": 2}))

    async def sleep() -> None:
        async with one.transaction() as connection:
            await connection.execute("select pg_sleep(60)")

    asleep = [asyncio.create_task(sleep()) for _ in range(2)]
    await until_asleep(database.settings.url, 2)
    for task in asleep:
        task.cancel()
    results = await asyncio.gather(*asleep, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    assert await use(one) == 1
    await one.close()
