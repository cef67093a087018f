"""Exports of any length: what they take of the server, and how one ends that breaks off."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import asyncpg
import httpx
import pytest

from api.app import create_app
from benchmarks.conversations import write_conversation
from settings import Settings
from tests.http.conftest import NOWHERE, served
from tests.services import PATIENCE_SECONDS

BIG = 3_000
"""Words in a message: 24 kB."""

LONG_ENOUGH = 400
"""Messages that no buffer between the two ends holds."""


@asynccontextmanager
async def on_one_connection(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """An api that has no more than one connection to Postgres for everything."""
    narrow = settings.model_copy(update={"database": settings.database.model_copy(update={"pool_size": 1})})
    async with served(create_app(narrow, temporal_address=NOWHERE)) as client:
        yield client


async def test_s80_a_long_export_takes_little_memory(settings: Settings, conn: asyncpg.Connection) -> None:
    await write_conversation(conn, "s1", 600, words=BIG)
    sent = 0
    async with on_one_connection(settings) as client:
        tracemalloc.start()
        try:
            async with client.stream("GET", "/api/sessions/s1/export") as answer:
                async for piece in answer.aiter_raw():
                    sent += len(piece)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert sent > 18_000_000
    assert peak < 10_000_000, f"{peak:,} bytes for an export of {sent:,}"


async def test_s80_a_slow_reader_holds_neither_a_lock_nor_a_connection(settings: Settings, conn: asyncpg.Connection) -> None:
    await write_conversation(conn, "s1", LONG_ENOUGH, words=BIG)
    async with on_one_connection(settings) as client, AsyncExitStack() as slow:
        for _ in range(3):
            answer = await slow.enter_async_context(client.stream("GET", "/api/sessions/s1/export"))
            assert await anext(answer.aiter_raw())
        await until_idle(conn)
        async with asyncio.timeout(PATIENCE_SECONDS), conn.transaction():
            await conn.execute("set local lock_timeout = '20s'")
            await conn.execute("lock table sessions, messages, branches, segments, calls in access exclusive mode")
        for _ in range(5):
            async with asyncio.timeout(PATIENCE_SECONDS):
                assert (await client.get("/api/sessions/s1")).status_code == 200


async def until_idle(conn: asyncpg.Connection) -> None:
    """Waits until nobody else's connection to this database is in a transaction."""
    busy = "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and state <> 'idle'"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await conn.fetchval(busy):
            await asyncio.sleep(0.05)


async def test_s80_who_leaves_in_the_middle_leaves_nothing_behind(settings: Settings, conn: asyncpg.Connection) -> None:
    await write_conversation(conn, "s1", LONG_ENOUGH, words=BIG)
    async with on_one_connection(settings) as client:
        for _ in range(3):
            async with client.stream("GET", "/api/sessions/s1/export") as answer:
                await anext(answer.aiter_raw())
        await until_idle(conn)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await client.get("/api/sessions/s1/transcript?index=-1")).status_code == 200
        await until_idle(conn)
        assert await conn.fetchval("select count(*) from audit where action = 'export'") == 3


@pytest.mark.parametrize("why", ["deleted", "fault"])
async def test_s80_an_export_that_breaks_off_does_not_look_whole(settings: Settings, conn: asyncpg.Connection, why: str) -> None:
    await write_conversation(conn, "s1", LONG_ENOUGH, words=BIG)
    async with on_one_connection(settings) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            async with client.stream("GET", "/api/sessions/s1/export?format=openai") as answer:
                assert answer.status_code == 200
                pieces = answer.aiter_raw()
                await anext(pieces)
                await _break(conn, why)
                async for _ in pieces:
                    pass


async def _break(conn: asyncpg.Connection, why: str) -> None:
    if why == "deleted":
        await conn.execute("delete from sessions")
        return
    await conn.execute("alter table messages rename column depth to elsewhere")


async def test_s80_no_file_begins_where_nothing_can_be_read(settings: Settings, conn: asyncpg.Connection) -> None:
    await write_conversation(conn, "s1", 10)
    async with on_one_connection(settings) as client:
        await conn.execute("alter table segments rename to elsewhere")
        answer: Any = await client.get("/api/sessions/s1/export")
        assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
