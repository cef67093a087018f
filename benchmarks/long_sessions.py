"""P9: a row of a transcript by its ordinal, in a short session and in a long one. S80: turns beside the export of the long one.

`python -m benchmarks stored` measures them alone.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
import asyncpg

from benchmarks.conversations import write_conversation
from benchmarks.figures import Figure
from benchmarks.stack import Outlast, Stack
from benchmarks.turns import Session, http_client

WORDS = 50
"""In each message; with the rest, it has 400 characters."""


@dataclass(frozen=True)
class Size:
    """How much is measured: messages of the long session and of the short one, reads of each, and turns with and without an export."""

    long: int = 10_000
    short: int = 100
    reads: int = 300
    turns: int = 40


TOY = Size(long=300, short=50, reads=3, turns=2)


async def long_sessions(stack: Stack, outlast: Outlast, size: Size) -> list[Figure]:
    """Writes both sessions past any workflow, and reads them through the api."""
    conn = await asyncpg.connect(stack.postgres.url())
    names = {f"long-{size.long}": size.long, f"short-{size.short}": size.short}
    for name, messages in names.items():
        await write_conversation(conn, name, messages, words=WORDS)
    await conn.execute("analyze")
    await conn.close()
    async with http_client() as http:
        return [*await _ordinals(outlast, http, size), *await _exports(outlast, http, size)]


async def _ordinals(outlast: Outlast, http: aiohttp.ClientSession, size: Size) -> list[Figure]:
    """By turns, so that a slow minute slows both."""
    found: dict[int, list[float]] = {size.short: [], size.long: []}
    for number in range(-20, size.reads):
        share, speaker = random.uniform(-1, 1), ("all", "user", "assistant")[number % 3]
        for name, length in (("short", size.short), ("long", size.long)):
            query = f"index={int(share * length / 2)}&speaker={speaker}"
            began = time.perf_counter()
            async with http.get(f"{outlast.url}/api/sessions/{name}-{length}/transcript?{query}") as answer:
                text = await answer.text()
            took = (time.perf_counter() - began) * 1000
            if answer.status != 200 or len(json.loads(text)["messages"]) != 1:
                raise RuntimeError(f"{query}: {text}")
            if number >= 0:
                found[length].append(took)
    short = Figure(f"transcript by ordinal, {size.short} messages", "ms", found[size.short])
    return [short, Figure(f"P9 transcript by ordinal, {size.long:,} messages", "ms", found[size.long], short, reach=1.5)]


async def _exports(outlast: Outlast, http: aiohttp.ClientSession, size: Size) -> list[Figure]:
    """Pairs of turns, one alone and one while the long session is exported again and again."""
    session, exports = Session(outlast.url, http), list[float]()
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(5):
        await session.turn()
    for _ in range(size.turns):
        alone.append(await session.turn())
        async with _exporting(outlast, size, exports):
            beside.append(await session.turn())
    lone = Figure("turn over POST /api/chat, nothing beside it", "ms", alone)
    return [
        lone,
        Figure(f"S80 turn beside an export of {size.long:,} messages", "ms", beside, lone, reach=2.0),
        Figure(f"export of {size.long:,} messages", "s", exports),
    ]


@asynccontextmanager
async def _exporting(outlast: Outlast, size: Size, took: list[float]) -> AsyncIterator[None]:
    """An export that has begun and goes on while the block runs."""
    begun = asyncio.Event()

    async def export() -> None:
        started = time.perf_counter()
        url = f"{outlast.url}/api/sessions/long-{size.long}/export"
        async with http_client() as other, other.get(url) as answer:
            async for _ in answer.content.iter_any():
                begun.set()
        took.append(time.perf_counter() - started)

    task = asyncio.create_task(export())
    await begun.wait()
    yield
    await task
