"""P8: how long a piece of text takes from the model to a reader of the session's events, with few and with many readers. P14: writes to a session
that many watch.

`python -m benchmarks.delivery [--toy]` measures them alone.
"""

import argparse
import asyncio
import json
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import httpx
import psutil

from benchmarks.figures import Figure, percentile
from benchmarks.report import table
from benchmarks.stack import Outlast, Stack, running_stack
from benchmarks.timed import CALL, HOST_CONTEXT, TIMED, pieces_every

QUEUE = "bench-delivery"
WRITE_LIMIT_SECONDS = 1.0


@dataclass(frozen=True)
class Size:
    """How much is measured: readers of few and many, turns, pieces a turn, how far apart, and turns at once; rounds of writes, and their watchers."""

    few: int = 100
    many: int = 1000
    turns: int = 40
    pieces: int = 50
    gap: int = 50
    at_once: int = 2
    watched_turns: int = 8
    rounds: int = 20
    watchers: int = 50


TOY = Size(few=2, many=4, turns=2, pieces=4, gap=30, watched_turns=1, rounds=1, watchers=3)


@dataclass(frozen=True)
class Turns:
    """So many turns, so many at once, each of so many pieces, a gap of milliseconds between them."""

    turns: int
    pieces: int
    gap: int
    at_once: int


@dataclass
class Watched:
    """What readers saw of the turns that were run while they read: milliseconds by piece and reader; kilobytes of the api for each reader."""

    milliseconds: list[float] = field(default_factory=list)
    kilobytes: float = 0.0


class Delivery:
    """A worker with a model that says the time, one api, and the sessions that are read."""

    def __init__(self, stack: Stack, outlast: Outlast, http: httpx.AsyncClient) -> None:
        self._stack = stack
        self._outlast = outlast
        self._http = http
        self._memory = psutil.Process(outlast.api.process.pid).memory_info

    @property
    def port(self) -> int:
        """The api's."""
        return urlsplit(self._outlast.url).port or 0

    async def sessions(self, count: int) -> list[str]:
        """New sessions that have had a turn."""
        names = [f"read-{uuid4()}" for _ in range(count)]
        turnstile = asyncio.Semaphore(8)

        async def begin(name: str) -> None:
            async with turnstile:
                await self.turn(name, "hello")

        await asyncio.gather(*[begin(name) for name in names])
        return names

    async def turn(self, session: str, content: str) -> None:
        """Runs a turn to its end. Raises RuntimeError for one that failed."""
        answer = await self._http.post("/api/chat", json={"session_id": session, "content": content})
        if answer.status_code != 200 or answer.json()["error"]:
            raise RuntimeError(f"a turn failed: {answer.status_code} {answer.text}")

    @asynccontextmanager
    async def read_by(self, sessions: Sequence[str]) -> AsyncIterator[Watched]:
        """Readers, one for each name, in a process of their own. What they saw is there when the block has ended."""
        number = len(self._stack.parts)
        paths, results = self._stack.folder / f"paths-{number}.json", self._stack.folder / f"seen-{number}.json"
        paths.write_text(json.dumps([f"/api/sessions/{name}/events" for name in sessions]))
        before = self._memory().rss
        part = self._stack.start("readers", "benchmarks.readers", str(self.port), str(paths), str(results))
        await asyncio.to_thread(part.wait)
        watched = Watched()
        yield watched
        watched.kilobytes = (self._memory().rss - before) / 1024 / len(sessions)
        await asyncio.to_thread(part.stop)
        seen = json.loads(results.read_text())
        if seen["lost"]:
            raise RuntimeError(f"{seen['lost']} of {len(sessions)} readers were cut off")
        watched.milliseconds = seen["milliseconds"]

    async def streamed(self, read: Sequence[str], streaming: Sequence[str], turns: Turns) -> Watched:
        """Turns of `streaming`, while `read` is read."""

        async def some(own: Sequence[str]) -> None:
            for _ in range(turns.turns // turns.at_once):
                await self.turn(random.choice(own), pieces_every(turns.pieces, turns.gap))

        async with self.read_by(read) as watched:
            await asyncio.gather(*[some(streaming[number :: turns.at_once]) for number in range(turns.at_once)])
        if not watched.milliseconds:
            raise RuntimeError("the readers saw no text")
        return watched

    async def writes(self, size: Size) -> list[float]:
        """Seconds that each of many writes took until it was accepted: messages into a live turn, cancels, host results."""
        (session,) = await self.sessions(1)
        long = {"session_id": session, "content": pieces_every(10_000, 20)}
        took: list[float] = []
        async with self.read_by([session] * size.watchers):
            for _ in range(size.rounds):
                await self._timed(took, "/api/chat?wait=false", long)
                await self._timed(took, "/api/chat?wait=false", long)
                await self._timed(took, f"/api/sessions/{session}/cancel", {})
                asked = {"session_id": session, "content": CALL, "host_context": HOST_CONTEXT}
                answer = await self._http.post("/api/chat", json=asked)
                call = answer.json()["pending_tool_call"]["call_id"]
                await self._timed(
                    took, "/api/chat?wait=false", {"session_id": session, "tool_call_id": call, "tool_result": {"opened": True}}
                )
        return took

    async def _timed(self, took: list[float], path: str, body: dict[str, Any]) -> None:
        began = time.monotonic()
        answer = await self._http.post(path, json=body)
        took.append(time.monotonic() - began)
        if answer.status_code not in (200, 202):
            raise RuntimeError(f"a write was refused: {answer.status_code} {answer.text}")


async def delivery(stack: Stack, size: Size) -> AsyncIterator[Figure]:
    """P8 and P14, figure by figure."""
    outlast = stack.outlast(QUEUE, model=TIMED)
    await asyncio.to_thread(outlast.api.wait)
    async with httpx.AsyncClient(base_url=outlast.url, timeout=120) as http:
        bench = Delivery(stack, outlast, http)
        names = await bench.sessions(size.many)
        few = names[: size.few]
        paced = Turns(size.turns, size.pieces, size.gap, size.at_once)
        for figure in _rows("1 reader", await bench.streamed(names[:1], names[:1], replace(paced, turns=size.watched_turns, at_once=1))):
            yield figure
        for figure in _rows(f"{size.few} readers on distinct sessions", await bench.streamed(few, few, paced), 10, 30):
            yield figure
        for figure in _rows(f"{size.many:,} readers on distinct sessions", await bench.streamed(names, names, paced), 10, 30):
            yield figure
        burst = await bench.streamed(few, few, replace(paced, gap=5))
        for figure in _rows(f"{size.few} readers, a piece every 5 ms, so most are coalesced", burst):
            yield figure
        crowd = await bench.streamed(names[:1] * size.many, names[:1], replace(paced, turns=size.watched_turns, at_once=1))
        for figure in _rows(f"{size.many:,} readers on one session", crowd, None, 200):
            yield figure
        writes = await bench.writes(size)
    yield Figure(f"P14 writes to a session with {size.watchers} readers, until accepted", "ms", [took * 1000 for took in writes])
    yield Figure("P14 the slowest of them", "s", [max(writes)], reach=WRITE_LIMIT_SECONDS)


def _rows(who: str, watched: Watched, median: float | None = None, p95: float | None = None) -> list[Figure]:
    rows = [Figure(f"P8 delta to reader, {who}", "ms", watched.milliseconds, reach=median)]
    if p95 is not None:
        rows.append(Figure(f"P8 delta to reader, {who}: p95", "ms", [percentile(watched.milliseconds, 0.95)], reach=p95))
        rows.append(Figure(f"P8 memory of the api for each reader, {who}", "kB", [max(0.0, watched.kilobytes)]))
    return rows


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args()
    with running_stack() as stack:
        asyncio.run(_print(stack, TOY if options.toy else Size()))


async def _print(stack: Stack, size: Size) -> None:
    async for figure in delivery(stack, size):
        print(table([figure]).splitlines()[-1], flush=True)


if __name__ == "__main__":
    main()
