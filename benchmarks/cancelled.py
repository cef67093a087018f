"""P13: a turn is cancelled in the middle of a long stream. How long until the provider's connection is closed and the partial text is stored?

`python -m benchmarks.cancelled [TIMES]` measures it alone, with what `outlast worker` and `outlast api` are.
"""

import asyncio
import sys
import time
from dataclasses import dataclass
from uuid import uuid4

import httpx

from benchmarks.figures import percentile
from benchmarks.stack import Stack, running_stack
from tests.provider import Behaviour, Provider, Received

QUEUE = "bench-cancelled"
MODEL = "openai-chat:scripted"
PIECES = 600
PIECE_SECONDS = 0.05
STREAMED_SECONDS = 0.4


@dataclass(frozen=True)
class Cancelled:
    """One cancel: seconds from the request for it to the closed connection, and to the stored partial text."""

    closed: float
    stored: float

    @property
    def both(self) -> float:
        """Seconds until both have happened."""
        return max(self.closed, self.stored)


def _endless() -> Behaviour:
    return {"stream": [part for n in range(PIECES) for part in ({"text": f"word {n} "}, {"pause": PIECE_SECONDS})]}


async def cancelled(stack: Stack, times: int) -> list[Cancelled]:
    """Measures `times` cancels. Raises RuntimeError if a cancel left no partial text."""
    async with Provider([_endless()]) as provider:
        env = {**stack.settings(QUEUE, MODEL), "OPENAI_BASE_URL": provider.url, "OPENAI_API_KEY": "unused"}
        stack.start(QUEUE, "cli.main", "worker", env=env, ready="worker ready")
        api = stack.api(QUEUE)
        await asyncio.to_thread(api.wait)
        async with httpx.AsyncClient(base_url=api.url, timeout=60) as http:
            return [await _one(provider, http) for _ in range(times)]


async def _one(provider: Provider, http: httpx.AsyncClient) -> Cancelled:
    session, before = f"cancelled-{uuid4()}", len(provider.requests)
    turn = asyncio.create_task(http.post("/api/chat", json={"session_id": session, "content": "Tell me something long."}))
    while len(provider.requests) == before and not turn.done():
        await asyncio.sleep(0.005)
    await asyncio.sleep(STREAMED_SECONDS)
    began = time.monotonic()
    closed = asyncio.create_task(_closed(provider.requests[-1], began))
    await http.post(f"/api/sessions/{session}/cancel", json={})
    answer = (await turn).json()
    stored = time.monotonic() - began
    if not answer.get("error") or answer["error"]["type"] != "cancelled" or not answer["content"]:
        raise RuntimeError(f"a cancelled turn kept nothing: {answer}")
    return Cancelled(await closed, stored)


async def _closed(request: Received, began: float) -> float:
    async with asyncio.timeout(30):
        await request.left.wait()
    return time.monotonic() - began


def main() -> None:
    """Prints the distribution."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with running_stack() as stack:
        cancels = asyncio.run(cancelled(stack, times))
    for name, samples in (("connection closed", [one.closed for one in cancels]), ("partial text stored", [one.stored for one in cancels])):
        print(f"{name}: median {percentile(samples, 0.5) * 1000:.0f} ms, p95 {percentile(samples, 0.95) * 1000:.0f} ms of {times}")


if __name__ == "__main__":
    main()
