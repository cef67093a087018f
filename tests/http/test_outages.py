"""Postgres lost after the start: refused, hanging, back again. And an api that has ended."""

import asyncio
import gc
import signal
import time
import weakref
from collections.abc import AsyncIterator
from uuid import UUID

import asyncpg
import httpx
import pytest

from api.app import create_app
from cli.services.postgres import PostgresServer
from settings import DatabaseSettings, Settings
from tests import services
from tests.http.conftest import NOWHERE, running, served
from tests.http.seeding import Seed
from tests.http.sse import opened

UID = UUID("00000000-0000-4000-8000-000000000001")
READS = ("/api/sessions", "/api/sessions/s1", "/api/sessions/s1/messages", "/api/sessions/s1/events", "/api/host-actions")


@pytest.fixture
async def lonely(own_postgres: PostgresServer, temporal_address: str) -> AsyncIterator[httpx.AsyncClient]:
    """The app on a Postgres that the test may stop."""
    settings = Settings(database=DatabaseSettings(url=services.as_runtime(own_postgres.url(services.TEMPLATE))), task_queue="nobody")
    async with running(create_app(settings, temporal_address=temporal_address)) as client:
        assert (await client.get("/api/sessions")).status_code == 200
        yield client


async def test_r15_r16_postgres_goes_and_comes_back(lonely: httpx.AsyncClient, own_postgres: PostgresServer) -> None:
    own_postgres.stop()
    for path in READS:
        answer = await lonely.get(path)
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable"), path
        assert int(answer.headers["retry-after"]) > 0
    write = await lonely.post("/api/chat", json={"session_id": "s1", "content": "hi"})
    assert (write.status_code, write.json()["code"]) == (503, "database_unavailable")
    health, ready = await lonely.get("/health"), await lonely.get("/health/ready")
    assert (health.status_code, health.json()["status"], health.json()["checks"]["postgres"]["ok"]) == (200, "degraded", False)
    assert ready.status_code == 503 and "postgres" in ready.json()["detail"]
    own_postgres.start()
    assert (await lonely.get("/api/sessions")).status_code == 200
    assert (await lonely.get("/api/sessions/s1")).status_code == 404
    assert (await lonely.get("/health")).json()["checks"]["postgres"]["ok"]


async def test_r15_a_postgres_that_hangs_is_noticed_in_time(lonely: httpx.AsyncClient, own_postgres: PostgresServer) -> None:
    own_postgres.signal(signal.SIGSTOP)
    began = time.monotonic()

    async def timed(path: str, limit: float) -> None:
        answer = await lonely.get(path)
        assert answer.status_code == 503, path
        assert time.monotonic() - began < limit, path

    await asyncio.gather(*(timed(path, 25) for path in READS), timed("/health/ready", 15))
    own_postgres.signal(signal.SIGCONT)
    for path in READS[:1]:
        assert (await lonely.get(path)).status_code == 200


async def test_r15_a_stream_outlives_postgres(own_postgres: PostgresServer) -> None:
    url = own_postgres.url(services.TEMPLATE)

    async def write(make: bool) -> None:
        conn = await asyncpg.connect(url)
        s = Seed(conn, "s1", uid=UID, seq=0 if make else 1)
        await (s.session() if make else asyncio.sleep(0))
        await s.event("turn.started" if make else "turn.completed")
        await conn.close()

    await write(True)
    settings = Settings(database=DatabaseSettings(url=services.as_runtime(url)))
    async with (
        served(create_app(settings, temporal_address=NOWHERE)) as client,
        opened(client, "/api/sessions/s1/events?until=turn") as (_, frames),
    ):
        assert (await anext(frames)).type == "turn.started"
        own_postgres.stop()
        await asyncio.sleep(0.5)
        own_postgres.start()
        await write(False)
        assert [frame.type async for frame in frames] == ["turn.completed"]


async def test_s44_a_schema_behind_head_is_not_ready(empty_database_url: str, temporal_address: str) -> None:
    settings = Settings(database=DatabaseSettings(url=empty_database_url), task_queue="nobody")
    async with running(create_app(settings, temporal_address=temporal_address)) as client:
        ready = await client.get("/health/ready")
        assert ready.status_code == 503
        assert "behind" in ready.json()["checks"]["postgres"]["error"]


async def test_s44_a_missing_privilege_is_not_ready_and_named(settings: Settings, conn: asyncpg.Connection, temporal_address: str) -> None:
    async with running(create_app(settings, temporal_address=temporal_address)) as client:
        assert (await client.get("/health/ready")).json()["checks"]["postgres"]["ok"] is True
        await conn.execute(f"revoke insert on turns from {services.RUNTIME_ROLE}; revoke update on calls from {services.RUNTIME_ROLE}")
        ready = await client.get("/health/ready")
        assert ready.status_code == 503
        named = f"privilege_missing: role {services.RUNTIME_ROLE} lacks insert on turns, update on calls"
        assert ready.json()["checks"]["postgres"]["error"].startswith(named)


async def test_without_both_nothing_works(alone: httpx.AsyncClient) -> None:
    health = await alone.get("/health")
    assert (health.status_code, health.json()["status"]) == (503, "unusable")
    assert (await alone.get("/health/ready")).status_code == 503
    assert (await alone.get("/api/sessions")).status_code == 503


async def test_an_api_that_has_ended_is_let_go(settings: Settings) -> None:
    """Frameworks keep what they learn of functions for good; none of these may hold an app and all that hangs on it."""
    app = create_app(settings, temporal_address=NOWHERE)
    async with running(app) as client:
        assert (await client.get("/docs")).status_code == 200
        assert (await client.get("/api/sessions")).status_code == 200
    known = weakref.ref(app)
    del app, client
    for _ in range(3):
        await asyncio.sleep(0)
        gc.collect()
    assert known() is None
