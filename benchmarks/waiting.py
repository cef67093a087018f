"""P7: ten thousand sessions that wait for their hosts. What they cost the worker, and how long the answer to one of them takes.

`python -m benchmarks waiting` measures it alone.
"""

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
import psutil

from benchmarks.figures import Figure
from benchmarks.stack import Outlast
from benchmarks.timed import CALL, HOST_CONTEXT, TIMED

AT_ONCE = 8
MOST_GROWTH = 1.25
MOST_TIMES_WARM = 4


@dataclass(frozen=True)
class Size:
    """Sessions that wait: when the worker's cache of workflows is full and its memory is looked at first, and in the end; answers of each kind."""

    full: int = 2_500
    sessions: int = 10_000
    answers: int = 100


TOY = Size(full=4, sessions=10, answers=2)


class Waiting:
    """A worker, an api, and the sessions that wait, the newest last."""

    def __init__(self, outlast: Outlast, http: httpx.AsyncClient) -> None:
        self._worker = psutil.Process(outlast.worker.process.pid)
        self._http = http
        self._calls: dict[str, str] = {}

    async def ask(self, count: int) -> float:
        """Brings the sessions to so many; answers the worker's resident memory then, in MB."""
        turnstile = asyncio.Semaphore(AT_ONCE)

        async def begin() -> None:
            async with turnstile:
                name = f"waiting-{uuid4()}"
                asked = {"session_id": name, "id": "m", "content": CALL, "host_context": HOST_CONTEXT, "config": {"model": TIMED}}
                self._calls[name] = (await self._sent(asked))["pending_tool_call"]["call_id"]

        await asyncio.gather(*[begin() for _ in range(count - len(self._calls))])
        return self._worker.memory_info().rss / 1e6

    def newest(self) -> str:
        """The one that began to wait last: its workflow is in the worker's cache."""
        return next(reversed(self._calls))

    def random(self) -> str:
        """Any one."""
        return random.choice(list(self._calls))

    async def answered(self, name: str) -> float:
        """Milliseconds from the host's result to the whole answer."""
        result = {"session_id": name, "tool_call_id": self._calls.pop(name), "tool_result": {"opened": True}}
        began = time.perf_counter()
        await self._sent(result)
        return (time.perf_counter() - began) * 1000

    async def _sent(self, body: dict[str, Any]) -> dict[str, Any]:
        """The answer. A machine that has other work is waited for."""
        answer = await self._http.post("/api/chat", json=body)
        while answer.status_code in (202, 503):
            await asyncio.sleep(1)
            answer = await self._http.post("/api/chat", json=body)
        given: dict[str, Any] = answer.json()
        if answer.status_code != 200 or given["error"]:
            raise RuntimeError(f"a turn failed: {answer.status_code} {answer.text}")
        return given


async def waiting(outlast: Outlast, size: Size) -> list[Figure]:
    """Memory of a fresh worker while sessions are added, then answers to random ones and to warm ones by turns."""
    async with httpx.AsyncClient(base_url=outlast.url, timeout=120) as http:
        sessions = Waiting(outlast, http)
        before, full, end = [await sessions.ask(count) for count in (1, size.full, size.sessions)]
        warm: list[float] = []
        cold: list[float] = []
        for _ in range(size.answers):
            warm.append(await sessions.answered(sessions.newest()))
            cold.append(await sessions.answered(sessions.random()))
    at_full = Figure(f"worker's memory, {size.full:,} sessions wait", "MB", [full], note=f"{before:.0f} MB with one")
    warm_ones = Figure("a result for a session in the worker's cache, until the answer", "ms", warm)
    return [
        at_full,
        Figure(f"P7 worker's memory, {size.sessions:,} sessions wait", "MB", [end], at_full, reach=MOST_GROWTH),
        warm_ones,
        Figure(f"P7 a result for any of {size.sessions:,} sessions", "ms", cold, warm_ones, reach=MOST_TIMES_WARM),
    ]
