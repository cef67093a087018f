"""P2 and P3 to turn 10,000: time, bytes and events of a turn where a session is new, at turn 1,000 and at turn 10,000.

`python -m benchmarks ten-thousand` measures it alone, in about ten minutes.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from temporalio.client import Client

from benchmarks.figures import Figure
from benchmarks.history import MOST_RUN_BYTES, TurnCost, all_runs, plain
from benchmarks.runs import EVENTS_LIMIT, HISTORY_LIMIT, paused
from benchmarks.stack import Outlast
from benchmarks.turns import Floor, Session, http_client

IDLE_SECONDS = 1.0
FLAT = 1.15
SAME_BYTES = 1.1


@dataclass(frozen=True)
class Size:
    """Turns of the session, and after which of them it is looked at: so many turns up to each of them, each beside an update of the floor."""

    marks: tuple[int, ...] = (20, 1000, 10_000)
    window: int = 20


TOY = Size(marks=(3, 6, 9), window=2)


async def ten_thousand(outlast: Outlast, client: Client, floor: Floor, size: Size) -> list[Figure]:
    """One session's life."""
    looked_at = [range(mark - size.window + 1, mark + 1) for mark in size.marks]
    in_floors: dict[int, float] = {}
    milliseconds: dict[int, float] = {}
    async with http_client() as http:
        session = Session(outlast.url, http)
        for number in range(1, size.marks[-1] + 1):
            if not any(number in window for window in looked_at):
                await session.turn()
                continue
            beside = await paused(floor.turn())
            milliseconds[number] = await paused(session.turn())
            in_floors[number] = milliseconds[number] / beside
        await asyncio.sleep(IDLE_SECONDS)
    figures: list[Figure] = []
    for window in looked_at:
        note = f"{median(milliseconds[number] for number in window):.1f} ms"
        first = figures[0] if figures else None
        name = f"{'P2 ' if first else ''}turns {window[0]:,}–{window[-1]:,} of one session"
        times = [in_floors[number] for number in window]
        figures.append(Figure(name, "floors", times, first, reach=FLAT if first else None, note=note))
    return [*figures, *await _history(client, session.workflow_id, size)]


async def _history(client: Client, workflow_id: str, size: Size) -> list[Figure]:
    """What the turns left in Temporal. A window's mean has what continuing as new costs in it, which one turn in fifty pays."""
    runs = await all_runs(client, workflow_id)
    turns = [turn for run in runs for turn in run.turns]
    if len(turns) != size.marks[-1]:
        raise RuntimeError(f"the history shows {len(turns)} turns of {size.marks[-1]}")
    found: list[Figure] = []
    for mark in size.marks:
        costs = plain(turns[mark - size.window : mark])
        found.append(Figure(f"P3 bytes of a turn at turn {mark:,}", "bytes", [turn.size for turn in costs], reach=HISTORY_LIMIT))
        found.append(Figure(f"P3 events of a turn at turn {mark:,}", "events", [turn.events for turn in costs], reach=EVENTS_LIMIT))
    return [
        *found,
        *_means(turns, len(runs), size),
        Figure("P3 bytes of a run, the largest", "bytes", [max(run.size for run in runs)], reach=MOST_RUN_BYTES),
    ]


def _means(turns: Sequence[TurnCost], runs: int, size: Size) -> list[Figure]:
    """The second thousand of turns, when as many ids are carried from run to run as ever will be, and the last."""
    span = size.marks[1]
    early, late = turns[span : 2 * span], turns[-span:]
    name = f"mean bytes of turns {span + 1:,}–{2 * span:,}, continuing as new included"
    first = Figure(name, "bytes", [_mean(early)], reach=HISTORY_LIMIT)
    last = f"P3 mean bytes of turns {len(turns) - span + 1:,}–{len(turns):,}"
    return [first, Figure(last, "bytes", [_mean(late)], first, reach=SAME_BYTES, note=f"{runs} runs")]


def _mean(turns: Sequence[TurnCost]) -> float:
    return sum(turn.size for turn in turns) / len(turns)
