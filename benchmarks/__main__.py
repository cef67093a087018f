"""`make bench`: measures everything and writes the results. `--toy` runs each measure once, at the least size, and writes nothing."""

import argparse
import asyncio
import os

from benchmarks import delivery, long_sessions, report, runs
from benchmarks.stack import Stack, running_stack


async def measure(stack: Stack, size: runs.Size) -> runs.Bench:
    """One run: every measure, on one stack."""
    async with runs.subjects(stack, size) as bench:
        await runs.short_sessions(bench)
        await runs.back_to_back(bench)
        await runs.pieces(bench)
        long = await runs.long_sessions(bench)
        await runs.cold(bench, long)
        stored = long_sessions.TOY if size is runs.TOY else long_sessions.Size()
        bench.figures += await long_sessions.long_sessions(stack, bench.cached, stored)
        await runs.stopped(bench)
        await runs.killed(bench)
    async for figure in delivery.delivery(stack, delivery.TOY if size is runs.TOY else delivery.Size()):
        bench.figures.append(figure)
    return bench


def main() -> None:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--toy", action="store_true", help="each measure once, at the least size; writes nothing")
    parser.add_argument("--flushed", action="store_true", help="both servers wait for the disk at each commit; prints, and writes nothing")
    options = parser.parse_args()
    load = os.getloadavg()[0]
    with running_stack(flushed=options.flushed) as stack:
        bench = asyncio.run(measure(stack, runs.TOY if options.toy else runs.Size()))
    print(report.table(bench.figures), *bench.words, sep="\n\n")
    if not (options.toy or options.flushed):
        path = report.write_json(bench.figures, bench.words, load, options.flushed)
        report.write_page(bench.figures, bench.words, load, path)


if __name__ == "__main__":
    main()
