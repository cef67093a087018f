"""P4: one turn of a hundred server-tool calls of 5 kB each in a conversation of 209,000 tokens, one call after the other and many at once.

`python -m benchmarks tool-turn` measures it alone.
"""

import asyncio
from dataclasses import dataclass

from temporalio.client import Client

from benchmarks.calling import FETCHING, asks
from benchmarks.figures import Figure
from benchmarks.history import MOST_RUN_BYTES, Run, all_runs
from benchmarks.stack import Outlast
from benchmarks.text import ANSWER_CHARACTERS, words
from benchmarks.turns import Session, http_client

IDLE_SECONDS = 1.0
CHARACTERS_PER_TOKEN = 4
MESSAGE_CHARACTERS = 40_000
MOST_TIMES_CONTENT = 3


@dataclass(frozen=True)
class Size:
    """The conversation's tokens, the turn's calls, what each returns, and how many a response makes where it makes many at once."""

    tokens: int = 209_000
    calls: int = 100
    characters: int = 5_000
    at_once: int = 25


TOY = Size(tokens=12_000, calls=4, characters=5_000, at_once=2)


async def tool_turn(outlast: Outlast, client: Client, size: Size) -> list[Figure]:
    """Both turns, each in a conversation of its own."""
    figures: list[Figure] = []
    async with http_client() as http:
        for at_once in (1, size.at_once):
            session = Session(outlast.url, http, fields=FETCHING)
            for _ in range(size.tokens * CHARACTERS_PER_TOKEN // (MESSAGE_CHARACTERS + ANSWER_CHARACTERS)):
                await session.turn(words(MESSAGE_CHARACTERS, f"{session.turns} "))
            took = await session.turn(asks(size.calls, size.characters, at_once))
            await asyncio.sleep(IDLE_SECONDS)
            figures += _figures(took, await all_runs(client, session.workflow_id), at_once, size)
    return figures


def _figures(took: float, runs: list[Run], at_once: int, size: Size) -> list[Figure]:
    turn = runs[-1].turns[-1] if runs[-1].turns else runs[-2].turns[-1]
    content = size.calls * size.characters + ANSWER_CHARACTERS
    how = f"{size.calls} calls, {at_once} at once, in a conversation of {size.tokens:,} tokens"
    largest = max(run.size for run in runs)
    return [
        Figure(f"P4 turn of {how}", "s", [took / 1000], note=f"{turn.events:,} events"),
        Figure(f"P4 history over content, {how}", "times", [turn.size / content], reach=MOST_TIMES_CONTENT, note=f"{turn.size:,} bytes"),
        Figure(f"P4 bytes of the largest run, {how}", "bytes", [largest], reach=MOST_RUN_BYTES),
    ]
