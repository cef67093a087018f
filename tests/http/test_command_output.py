"""What commands do when nobody takes what they print: a full disk is told, and a reader that went away is left in silence."""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.commands import ran
from tests.models import says, script
from tests.system import System, running_system

HISTORY = next((Path(__file__).parents[1] / "replay" / "histories").glob("*.json"))
PRINTING = (
    ("--help",),
    ("--version",),
    ("verify", "--all"),
    ("replay", str(HISTORY)),
    ("stuck",),
    ("doctor",),
    ("export", "s1", "--tenant", "{tenant}"),
    ("payloads", "collect"),
    ("keys", "create", "ann"),
    ("erase", "--principal", "nobody", "--yes"),
    ("migrate",),
    ("worker",),
)
"""One of each kind that writes to stdout, but for the programs that go on when their terminal is gone, and `chat`."""
PIPED = PRINTING[:-4]
AT_ONCE = 4


@contextmanager
def full() -> Iterator[int]:
    """A disk without space."""
    disk = os.open("/dev/full", os.O_WRONLY)
    yield disk
    os.close(disk)


@contextmanager
def left() -> Iterator[int]:
    """A pipe that nobody reads any more."""
    reads, writes = os.pipe()
    os.close(reads)
    yield writes
    os.close(writes)


async def _told(system: System, url: str, stdout: int, commands: Sequence[tuple[str, ...]]) -> dict[str, tuple[int | None, str]]:
    """Exit code and stderr of each command."""
    at = {"OUTLAST_DATABASE__URL": url, "TEMPORAL_ADDRESS": system.address, "OUTLAST_TASK_QUEUE": system.settings.task_queue}
    turnstile = asyncio.Semaphore(AT_ONCE)

    async def one(arguments: tuple[str, ...]) -> tuple[str, tuple[int | None, str]]:
        async with turnstile:
            code, _, err = await ran(*(each.format(tenant=system.tenant) for each in arguments), at=at, stdout=stdout, seconds=120)
        return " ".join(arguments), (code, err)

    return dict(await asyncio.gather(*map(one, commands)))


async def test_a_full_disk_is_one_line_and_a_reader_that_went_away_is_none(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("hello"))) as system:
        await system.chat("s1", "one")
        with full() as disk:
            told = await _told(system, database_url, disk, PRINTING)
        lines = {
            name: (code, [line for line in err.splitlines() if "stdout" in line or "rror" in line]) for name, (code, err) in told.items()
        }
        assert lines == dict.fromkeys(told, (1, ["outlast: stdout can't be written: No space left on device"]))
        with left() as pipe:
            told = await _told(system, database_url, pipe, PIPED)
        quiet = {name: (code, "outlast:" in err or "Traceback" in err or "rror" in err) for name, (code, err) in told.items()}
        assert quiet == dict.fromkeys(told, (141, False))
