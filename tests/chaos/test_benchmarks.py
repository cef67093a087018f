"""The benchmarks at toy size: every measure is taken, and what does not depend on the machine's pace is as it should be."""

import subprocess
import sys

import pytest

MEASURES = (
    "P1 turn, request to `turn.completed`",
    "P1 turn, request to the answer",
    "P2 turns",
    "P2 turns 8–9 of one session",
    "P3 history",
    "P3 events",
    "P3 bytes of a turn at turn 9",
    "P3 mean bytes",
    "P4 turn of 4 calls, 1 at once",
    "P4 turn of 4 calls, 2 at once",
    "P5",
    "P7 worker's memory",
    "P7 a result",
    "P8 delta to reader, 1 reader",
    "P8 delta to reader, 4 readers on one session",
    "P8 memory",
    "P9",
    "P10 histories a second",
    "P10 one history",
    "S80",
    "P12",
    "P14",
    "peer (a)",
)
OF_ANY_PACE = ("P3", "P4 history", "P4 bytes", "P12 requests")


@pytest.mark.timeout(480)
def test_the_benchmarks_measure_everything() -> None:
    done = subprocess.run([sys.executable, "-m", "benchmarks", "--toy"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [row for row in done.stdout.splitlines() if row.startswith("| ")]
    for measure in MEASURES:
        assert any(row.startswith(f"| {measure}") for row in rows), f"{measure} was not measured"
    for row in rows:
        if row.startswith(tuple(f"| {name}" for name in OF_ANY_PACE)):
            assert row.endswith("| reached |"), row
