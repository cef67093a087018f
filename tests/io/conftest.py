"""Databases of the io tier, beside those of every tier: servers without a schema, and one that asks for passwords."""

from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest

from activities.db.pool import Database
from cli.services.postgres import PostgresServer
from settings import DatabaseSettings
from tests import services
from tests.ports import free_port


@pytest.fixture
def empty(empty_database_url: str) -> DatabaseSettings:
    """A database without a schema."""
    return DatabaseSettings(url=empty_database_url)


@pytest.fixture
def migrated(database_url: str) -> DatabaseSettings:
    """A database at head."""
    return DatabaseSettings(url=database_url)


@pytest.fixture
async def conn(migrated: DatabaseSettings) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the schema's owner to a database at head."""
    connection = await asyncpg.connect(migrated.url)
    yield connection
    await connection.close()


@pytest.fixture
async def database(migrated: DatabaseSettings) -> AsyncIterator[Database]:
    """A pool of the runtime role on a database at head."""
    database = await Database.open(migrated.model_copy(update={"url": services.as_runtime(migrated.url)}))
    yield database
    await database.close()


@pytest.fixture
def bare_postgres() -> Iterator[PostgresServer]:
    """A server that the test may stop and freeze, with no database of ours."""
    with services.running_postgres() as server:
        yield server


@pytest.fixture
async def password_url() -> AsyncIterator[str]:
    """Where databases of a server are that asks for passwords: `{user}`, `{password}` and `{database}` are left open."""
    port = free_port()
    with services.running_postgres(tcp_port=port) as server:
        admin = await asyncpg.connect(server.url("postgres"), port=port)
        await admin.execute("create role owner login createdb password 'right'; create role guest login password 'right'")
        await admin.close()
        yield "postgresql://{user}:{password}@127.0.0.1:" + f"{port}/" + "{database}"
