"""`make bench`: measures everything and writes the results. With names of measures it takes those alone, prints, and writes nothing;
`--toy` takes each once, at the least size, and writes nothing either.
"""

import argparse
import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence

from benchmarks import crowd, delivery, long_sessions, replaying, report, runs, ten_thousand, tool_turn, waiting
from benchmarks.stack import Stack, running_stack


async def _stored(bench: runs.Bench) -> None:
    size = long_sessions.TOY if bench.toy else long_sessions.Size()
    bench.figures += await long_sessions.long_sessions(bench.stack, bench.cached, size)


async def _ten_thousand(bench: runs.Bench) -> None:
    size = ten_thousand.TOY if bench.toy else ten_thousand.Size()
    bench.figures += await ten_thousand.ten_thousand(bench.cached, bench.client, bench.floor, size)


async def _tool_turn(bench: runs.Bench) -> None:
    bench.figures += await tool_turn.tool_turn(bench.cached, bench.client, tool_turn.TOY if bench.toy else tool_turn.Size())


async def _crowd(bench: runs.Bench) -> None:
    bench.figures += await crowd.crowd(bench.cached, bench.client, crowd.TOY if bench.toy else crowd.Size())


async def _waiting(bench: runs.Bench) -> None:
    await bench.deploy()  # a worker that remembers nothing
    bench.figures += await waiting.waiting(bench.cached, waiting.TOY if bench.toy else waiting.Size())


async def _replaying(bench: runs.Bench) -> None:
    folder, size = bench.stack.folder / "histories", replaying.TOY if bench.toy else replaying.Size()
    folder.mkdir()
    bench.figures += await replaying.replaying(bench.cached, bench.client, folder, size)


async def _delivery(bench: runs.Bench) -> None:
    async for figure in delivery.delivery(bench.stack, delivery.TOY if bench.toy else delivery.Size()):
        bench.figures.append(figure)


MEASURES: dict[str, Callable[[runs.Bench], Awaitable[None]]] = {
    "turns": runs.short_sessions,
    "back-to-back": runs.back_to_back,
    "pieces": runs.pieces,
    "long": runs.long_sessions,
    "cold": runs.cold,
    "ten-thousand": _ten_thousand,
    "tool-turn": _tool_turn,
    "crowd": _crowd,
    "waiting": _waiting,
    "stored": _stored,
    "replaying": _replaying,
    "cancelled": runs.stopped,
    "killed": runs.killed,
    "delivery": _delivery,
}
"""In the order in which they are taken. docs/benchmarks.md says what each is."""


async def measure(stack: Stack, size: runs.Size, names: Sequence[str]) -> runs.Bench:
    """One run, on one stack."""
    async with runs.subjects(stack, size) as bench:
        for name, taken in MEASURES.items():
            if name in names:
                await taken(bench)
    return bench


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("measures", nargs="*", metavar="MEASURE", help=f"of {', '.join(MEASURES)}; none: all of them")
    parser.add_argument("--toy", action="store_true", help="each measure once, at the least size; writes nothing")
    parser.add_argument("--flushed", action="store_true", help="both servers wait for the disk at each commit; prints, and writes nothing")
    options = parser.parse_args()
    if unknown := set(options.measures) - set(MEASURES):
        parser.error(f"there is no measure {', '.join(sorted(unknown))}; there are {', '.join(MEASURES)}")
    load = os.getloadavg()[0]
    with running_stack(flushed=options.flushed) as stack:
        bench = asyncio.run(measure(stack, runs.TOY if options.toy else runs.Size(), options.measures or list(MEASURES)))
    print(report.table(bench.figures), *bench.words, sep="\n\n")
    if not (options.toy or options.flushed or options.measures):
        path = report.write_json(bench.figures, bench.words, load, options.flushed)
        report.write_page(bench.figures, bench.words, load, path)


if __name__ == "__main__":
    main()
