"""P6: many sessions at once, each with turns one after the other, against as many workflows of the floor with as many updates.

`python -m benchmarks crowd` measures it alone.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from statistics import median
from uuid import uuid4

from temporalio.client import Client

from benchmarks.figures import Figure
from benchmarks.floor import FLOOR_QUEUE, FloorWorkflow
from benchmarks.stack import Outlast
from benchmarks.turns import Session, http_client

SLOWER = 1 / 0.8
"""What a turn may take of the machine, in updates of the floor."""


@dataclass(frozen=True)
class Size:
    """Sessions that begin at once, turns of each, and how often this is done."""

    sessions: int = 200
    turns: int = 5
    rounds: int = 3


TOY = Size(sessions=3, turns=2, rounds=1)


async def crowd(outlast: Outlast, client: Client, size: Size) -> list[Figure]:
    """Milliseconds a turn and an update, all together, by turns. Raises RuntimeError if a turn failed."""

    async def updates() -> None:
        handle = await client.start_workflow(FloorWorkflow.run, id=f"floor/{uuid4()}", task_queue=FLOOR_QUEUE)
        for _ in range(size.turns):
            await handle.execute_update(FloorWorkflow.turn)

    floors: list[float] = []
    ours: list[float] = []
    async with http_client(at_once=size.sessions) as http:

        async def turns() -> None:
            session = Session(outlast.url, http)
            for _ in range(size.turns):
                await session.turn()

        for _ in range(size.rounds):
            floors.append(await _together(updates, size))
            ours.append(await _together(turns, size))
    at_once = f"{size.sessions} at once, {size.turns} each"
    floor = Figure(f"floor, updates of {at_once}", "ms", floors, note=_a_second(floors))
    return [floor, Figure(f"P6 turns of {at_once}", "ms", ours, floor, reach=SLOWER, note=_a_second(ours))]


async def _together(one: Callable[[], Awaitable[None]], size: Size) -> float:
    began = time.perf_counter()
    await asyncio.gather(*[one() for _ in range(size.sessions)])
    return (time.perf_counter() - began) * 1000 / (size.sessions * size.turns)


def _a_second(milliseconds: list[float]) -> str:
    return f"{1000 / median(milliseconds):.0f} a second"
