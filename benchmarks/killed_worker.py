"""P12: a worker is killed in the middle of a model request while another one runs. How long until the turn is complete?

`python -m benchmarks.killed_worker [TIMES]` measures it alone, with what `outlast worker` and `outlast api` are.
"""

import asyncio
import sys
import time
from dataclasses import dataclass
from uuid import uuid4

import httpx
import psutil

from benchmarks.stack import Part, Stack, running_stack
from tests.provider import Behaviour, Provider

QUEUE = "bench-killed"
MODEL = "openai-chat:scripted"
WORKERS = 2
PIECES = 30
PIECE_SECONDS = 0.1
KILLED_AFTER_SECONDS = 1.0


@dataclass(frozen=True)
class Killed:
    """One kill: seconds from it to the turn's answer without the model's own, and the requests that the step took."""

    seconds: float
    requests: int


def _slow_answer() -> Behaviour:
    return {"stream": [part for n in range(PIECES) for part in ({"text": f"word {n} "}, {"pause": PIECE_SECONDS})]}


async def killed_worker(stack: Stack, times: int) -> list[Killed]:
    """Measures `times` kills. Raises RuntimeError if a turn did not come to its answer."""
    async with Provider([_slow_answer()]) as provider:
        env = {**stack.settings(QUEUE, MODEL), "OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": "unused"}
        workers = [stack.start(f"{QUEUE}-{n}", "cli.main", "worker", env=env, ready="worker ready") for n in range(WORKERS)]
        api = stack.api(QUEUE)
        for part in (*workers, api):
            await asyncio.to_thread(part.wait)
        async with httpx.AsyncClient(base_url=api.url, timeout=120) as http:
            return [await _one(stack, provider, workers, http) for _ in range(times)]


async def _one(stack: Stack, provider: Provider, workers: list[Part], http: httpx.AsyncClient) -> Killed:
    await _all_there(stack, workers)
    before = len(provider.requests)
    turn = asyncio.create_task(http.post("/api/chat", json={"session_id": f"killed-{uuid4()}", "content": "Tell me something long."}))
    while len(provider.requests) == before and not turn.done():
        await asyncio.sleep(0.01)
    await asyncio.sleep(KILLED_AFTER_SECONDS)
    victim = _in_request(workers, provider)
    victim.kill()
    killed = time.monotonic()
    response = await turn
    took = time.monotonic() - killed - PIECES * PIECE_SECONDS
    answer = response.json()
    if response.status_code != 200 or answer["error"] or f"word {PIECES - 1}" not in answer["content"]:
        raise RuntimeError(f"the turn of a killed worker did not come to its answer: {response.status_code} {answer}")
    return Killed(took, len(provider.requests) - before)


async def _all_there(stack: Stack, workers: list[Part]) -> None:
    """Replaces the worker that was killed before."""
    for place, worker in enumerate(workers):
        if worker.process.poll() is not None:
            workers[place] = stack.again(worker)
            await asyncio.to_thread(workers[place].wait)


def _in_request(workers: list[Part], provider: Provider) -> Part:
    """The worker that has a connection to the provider with a request in it."""
    port = httpx.URL(provider.url).port
    for part in workers:
        for connection in psutil.Process(part.process.pid).net_connections(kind="tcp"):
            if connection.raddr[1:] == (port,) and connection.status == psutil.CONN_ESTABLISHED:
                return part
    raise RuntimeError("no worker is in a model request")


def main() -> None:
    """Prints a line for each kill."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with running_stack() as stack:
        for killed in asyncio.run(killed_worker(stack, times)):
            print(f"{killed.seconds:6.2f} s beyond the model's own time, {killed.requests} requests")


if __name__ == "__main__":
    main()
