"""Postgres of the test run: one server for all, a database for each test, and a server of its own for tests that break it."""

import itertools
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import asyncpg
import pytest

from activities.db.migrate import migrate
from activities.db.pool import Database
from settings import DatabaseSettings
from tests.io.postgres import PostgresServer, running_server

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """The server that tests share. Nobody stops it."""
    with running_server() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    """A server that the test may stop and freeze."""
    with running_server() as server:
        yield server


Statement = Callable[..., Awaitable[None]]


@pytest.fixture
async def run_sql(server: PostgresServer) -> Statement:
    """Runs a statement as superuser, by default in database `postgres`."""

    async def run(statement: str, database: str = "postgres") -> None:
        connection = await asyncpg.connect(server.socket_url(database))
        await connection.execute(statement)
        await connection.close()

    return run


@pytest.fixture
async def empty(server: PostgresServer, run_sql: Statement) -> DatabaseSettings:
    """A database without a schema."""
    name = f"empty_{next(_numbers)}"
    await run_sql(f"create database {name}")
    return DatabaseSettings(url=server.url(name))


@pytest.fixture(scope="session")
def _template() -> dict[str, bool]:
    return {}


@pytest.fixture
async def migrated(server: PostgresServer, run_sql: Statement, _template: dict[str, bool]) -> DatabaseSettings:
    """A database at head, copied from a template."""
    if not _template:
        await migrate(DatabaseSettings(url=server.url("template_outlast")), create=True)
        _template["made"] = True
    name = f"test_{next(_numbers)}"
    await run_sql(f"create database {name} template template_outlast")
    return DatabaseSettings(url=server.url(name))


@pytest.fixture
async def database(migrated: DatabaseSettings) -> AsyncIterator[Database]:
    """A pool on a database at head."""
    database = await Database.open(migrated)
    yield database
    await database.close()


@pytest.fixture(scope="session")
def temporal_address() -> Iterator[str]:
    """A Temporal dev server for all tests."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = ["temporal", "server", "start-dev", "--headless", "--port", str(port), "--log-level", "error"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    for _ in range(100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.1)
    yield f"127.0.0.1:{port}"
    process.terminate()
    process.wait(10)
