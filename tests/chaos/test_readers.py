"""Readers of one turn, while everything between the model and them is lost once."""

import asyncio
import signal
from typing import Any

import httpx

from cli.services.postgres import PostgresServer
from cli.services.temporal import TemporalServer
from tests.chaos.processes import Programs
from tests.chaos.stand import standing, until
from tests.http.sse import Frame, opened, shown_text, told
from tests.ports import free_port

WORDS = 75
CUT = {"stream": [{"text": f"lost {n} "} for n in range(5)], "end": "stall"}
TEXT = "".join(f"wörd {n} 👋 " for n in range(WORDS))


def whole(*gates: asyncio.Event) -> dict[str, Any]:
    """An answer of many words, which waits at each gate: there are as many words before, between and behind them."""
    part = WORDS // (len(gates) + 1)
    stream: list[dict[str, Any]] = []
    for number in range(WORDS):
        if number and number % part == 0 and number // part <= len(gates):
            stream.append({"pause": gates[number // part - 1]})
        stream += [{"text": f"wörd {number} 👋 "}, {"pause": 0.06}]
    return {"stream": stream}


class Follower:
    """A client that comes back with its last id, as often as it takes. `cuts` counts how often it lost its stream."""

    def __init__(self, base_url: str, path: str) -> None:
        self._base_url = base_url
        self._path = path
        self.frames: list[Frame] = []
        self.cuts = 0

    async def follow(self) -> None:
        async with httpx.AsyncClient(base_url=self._base_url, timeout=20) as http:
            while not (self.frames and self.frames[-1].type == "turn.completed"):
                headers = {"Last-Event-ID": self.frames[-1].id} if self.frames else {}
                try:
                    async with opened(http, self._path, headers=headers) as (response, stream):
                        response.raise_for_status()
                        async for frame in stream:
                            self.frames.append(frame)
                except (httpx.TransportError, httpx.HTTPStatusError):
                    self.cuts += 1
                    await asyncio.sleep(0.1)

    def has(self, word: str) -> bool:
        """Whether it has read this."""
        return word in shown_text(self.frames).get(0, "")


async def test_r88_s69_readers_of_a_turn_end_alike_though_worker_api_and_postgres_were_lost(
    programs: Programs, own_postgres: PostgresServer, own_temporal: TemporalServer
) -> None:
    cut, lost = asyncio.Event(), asyncio.Event()
    async with standing(programs, own_postgres, own_temporal, CUT, whole(cut, lost)) as stand:
        port = free_port()
        other = programs.start("api", env=stand.env | {"OUTLAST_API__PORT": str(port)})
        await other.says("api ready")
        worker = await stand.worker(OUTLAST_DATABASE__TIMEOUT_SECONDS="2")
        turn = await stand.submit()
        path = turn["events"] + "&until=turn"
        one, two, late = Follower(stand.url, path), Follower(f"http://127.0.0.1:{port}", path), Follower(stand.url, path)
        reading = [asyncio.create_task(follower.follow()) for follower in (one, two)]
        await until(lambda: one.has("lost 4") and two.has("lost 4"))
        worker.kill()
        await stand.worker(OUTLAST_DATABASE__TIMEOUT_SECONDS="2")
        await until(lambda: one.has("wörd 5 ") and two.has("wörd 5 "))
        stand.api.kill()
        await until(lambda: two.has("wörd 20 "))
        stand.api.start()
        await until(lambda: one.has("wörd 24 ") and two.has("wörd 24 "))
        cut.set()
        own_postgres.stop()
        own_postgres.start()
        await until(lambda: one.has("wörd 49 "))
        reading.append(asyncio.create_task(late.follow()))
        lost.set()
        assert await stand.ended(turn["turn_id"]) == "completed"
        async with asyncio.timeout(60):
            await asyncio.gather(*reading)
        assert told(one.frames) == told(two.frames) == told(late.frames)
        assert shown_text(one.frames) == {0: TEXT}
        assert (await stand.messages())[-1]["content"] == TEXT
        assert [frame.type for frame in one.frames].count("step.restarted") == 1
        assert one.cuts and len(stand.provider.requests) == 2
        assert await other.stop(signal.SIGTERM) == 0
