"""P10: how fast recorded histories are replayed, as `outlast replay` does it, and one of 2,000 events.

`python -m benchmarks replaying` measures it alone.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from temporalio.client import Client

from benchmarks.calling import FETCHING, asks
from benchmarks.figures import Figure
from benchmarks.history import first_run
from benchmarks.stack import Outlast
from benchmarks.turns import Session, http_client
from cli.replay.pool import Children
from cli.replay.verdict import Verdict

IDLE_SECONDS = 1.0
EVENTS_A_CALL = 12


@dataclass(frozen=True)
class Size:
    """Sessions and turns of each, about how many events the long history has, and processes that replay side by side."""

    sessions: int = 200
    turns: int = 5
    events: int = 2_000
    jobs: tuple[int, ...] = tuple(sorted({1, os.cpu_count() or 1}))


TOY = Size(sessions=2, turns=2, events=60, jobs=(1,))


async def replaying(outlast: Outlast, client: Client, folder: Path, size: Size) -> list[Figure]:
    """Records histories in `folder`, then replays them in one process and in one a processor."""
    short, long = await _recorded(outlast, client, size, folder)
    found: list[Figure] = []
    for jobs in size.jobs:
        began = time.perf_counter()
        verdicts = await _replayed(short, jobs)
        took = time.perf_counter() - began
        events = sum(verdict.events for verdict in verdicts)
        name = f"P10 histories a second, {jobs} process{'es' if jobs > 1 else ''}, their start included"
        note = f"{len(verdicts)} of {events // len(verdicts)} events, {events / took:,.0f} events a second"
        found.append(Figure(name, "histories/s", [len(verdicts) / took], note=note))
    (one,) = await _replayed([long], 1)
    return [*found, Figure(f"P10 one history of {one.events:,} events", "s", [one.seconds])]


async def _recorded(outlast: Outlast, client: Client, size: Size, folder: Path) -> tuple[list[Path], Path]:
    """The files of the short histories, and of the long one."""
    async with http_client() as http:
        sessions = [Session(outlast.url, http) for _ in range(size.sessions)]
        for _ in range(size.turns):
            for session in sessions:
                await session.turn()
        one = Session(outlast.url, http, fields=FETCHING)
        await one.turn(asks(size.events // EVENTS_A_CALL, 500, 1))
    await asyncio.sleep(IDLE_SECONDS)
    return [await _saved(client, session, folder) for session in sessions], await _saved(client, one, folder)


async def _saved(client: Client, session: Session, folder: Path) -> Path:
    """The history of a session's first run, as a file."""
    first = await first_run(client, session.workflow_id)
    path = folder / f"{session.id}.json"
    path.write_text((await client.get_workflow_handle(session.workflow_id, run_id=first).fetch_history()).to_json())
    return path


async def _replayed(paths: list[Path], jobs: int) -> list[Verdict]:
    """Raises RuntimeError for a history that does not agree with the code."""

    async def each() -> AsyncIterator[Path]:
        for path in paths:
            yield path

    verdicts: list[Verdict] = []
    await Children(jobs, Path("none")).judge(each(), verdicts.append)
    if wrong := [verdict for verdict in verdicts if verdict.kind != "same"]:
        raise RuntimeError(f"{len(wrong)} of {len(paths)} histories did not replay: {wrong[0].detail}")
    return verdicts
