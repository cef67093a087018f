"""The real app, with or without a socket, on a database of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import uuid4

import asyncpg
import httpx
import pytest
from fastapi import FastAPI, Request

from api.access import identify
from api.app import create_app
from api.server import ApiServer
from settings import ApiSettings, DatabaseSettings, Settings
from tests import services
from tests.http.seeding import Seed
from tests.services import PATIENCE_SECONDS
from tests.system import System, callers_of
from workflows.model.session import Caller

NOWHERE = "127.0.0.1:1"
"""An address where no Temporal is."""


def caller_of_headers(request: Request) -> Caller:
    """Stands in for the access modes in which callers differ: the test's headers say who calls."""
    roles = tuple(filter(None, request.headers.get("x-test-roles", "").split(",")))
    tenant = request.headers.get("x-test-tenant", "default")
    return Caller(tenant=tenant, principal=request.headers.get("x-test-principal", "local"), roles=roles)


@pytest.fixture
def session() -> str:
    """A session id that no other test uses: they share a Temporal server."""
    return f"s-{uuid4().hex[:12]}"


@pytest.fixture
async def one_day() -> None:
    """Waits for the next day (UTC) where this one is nearly over, so that none ends within the test."""
    left = 86_400 - datetime.now(UTC).timestamp() % 86_400
    if left < PATIENCE_SECONDS:
        await asyncio.sleep(left + 0.1)


@pytest.fixture
def settings(database_url: str) -> Settings:
    return Settings(database=DatabaseSettings(url=services.as_runtime(database_url)), api=ApiSettings(wait_seconds=PATIENCE_SECONDS))


@pytest.fixture
async def conn(database_url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(database_url)
    yield connection
    await connection.close()


@pytest.fixture
def seed(conn: asyncpg.Connection) -> Callable[[str], Seed]:
    return lambda session_id: Seed(conn, session_id)


@asynccontextmanager
async def running(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app, without a socket: answers arrive whole."""
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            yield client


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the app behind a real server: answers stream."""
    server = ApiServer(app)
    task = asyncio.create_task(server.run())
    while not server.started:
        assert not task.done(), task
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60.0) as client:
            yield client
    finally:
        server.stop()
        await task


@asynccontextmanager
async def served_beside(system: System, address: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client of one more api of a running system, behind a server. `address` is Temporal's."""
    app = create_app(system.settings, temporal_address=address)
    app.dependency_overrides[identify] = callers_of(system.tenant)
    async with served(app) as client:
        yield client


@pytest.fixture
async def offline(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The app while Temporal is not there; headers say who calls."""
    app = create_app(settings, temporal_address=NOWHERE)
    app.dependency_overrides[identify] = caller_of_headers
    async with running(app) as client:
        yield client


@pytest.fixture
async def alone() -> AsyncIterator[httpx.AsyncClient]:
    """The app while neither Temporal nor Postgres is there."""
    settings = Settings(database=DatabaseSettings(url="postgresql://nobody@127.0.0.1:1/none"))
    async with running(create_app(settings, temporal_address=NOWHERE)) as client:
        yield client


@pytest.fixture
async def streaming(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The app behind a server while Temporal is not there: streams need no workflow."""
    async with served(create_app(settings, temporal_address=NOWHERE)) as client:
        yield client
