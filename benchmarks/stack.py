"""Everything that a run starts: the two servers, and a process for each part under measurement. All of it ends with the run."""

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from activities.db.migrate import migrate
from benchmarks.instant import INSTANT
from cli.services.postgres import PostgresServer
from cli.services.process import end, free_port, plain_environment, spawn, wait_for
from cli.services.temporal import TemporalServer
from settings import DatabaseSettings

_ROOT = Path(__file__).parents[1]
_READY = "ready to work"


def say_ready() -> None:
    """Tells the process that started this one that it may be measured."""
    sys.stdout.write(f"{_READY}\n")
    sys.stdout.flush()


@dataclass
class Part:
    """A child process of a run."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    def said_ready(self) -> bool:
        """Whether it said so."""
        return _READY in self.log.read_text(errors="replace")

    def stop(self) -> None:
        """Ends it at once: a part keeps nothing."""
        end(self.process, (signal.SIGKILL, 5.0))


@dataclass
class Outlast:
    """An api and its worker on a task queue of their own."""

    queue: str
    url: str
    api: Part
    worker: Part


@dataclass
class Stack:
    """The servers of a run and what was started on them."""

    folder: Path
    temporal: TemporalServer
    postgres: PostgresServer
    parts: list[Part] = field(default_factory=list)

    def start(self, name: str, module: str, *arguments: str, env: Mapping[str, str] | None = None) -> Part:
        """Starts a module as a process of its own and returns at once."""
        log = self.folder / f"{name}-{len(self.parts)}.log"
        command = [sys.executable, "-m", module, *arguments]
        part = Part(name, spawn(command, log=log, last_will=signal.SIGKILL, cwd=_ROOT, env={**plain_environment(), **(env or {})}), log)
        self.parts.append(part)
        return part

    def start_ready(self, name: str, module: str, *arguments: str, env: Mapping[str, str] | None = None) -> Part:
        """Starts a module that says when it is ready, and waits for that. Raises SetupError."""
        part = self.start(name, module, *arguments, env=env)
        wait_for(part.process, part.said_ready, name=name, log=part.log, seconds=60)
        return part

    def worker(self, queue: str, *arguments: str, env: Mapping[str, str] | None = None) -> Part:
        """Starts a worker of ours on a task queue. Raises SetupError."""
        known = {**self._settings(queue), **(env or {})}
        return self.start_ready(f"worker-{queue}", "benchmarks.outlast_worker", self.temporal.address, *arguments, env=known)

    def outlast(self, queue: str, *arguments: str, env: Mapping[str, str] | None = None) -> Outlast:
        """Starts a worker and an api of ours and waits until the api says that it has all it needs. Raises SetupError."""
        worker = self.worker(queue, *arguments, env=env)
        port = free_port()
        api = self.start(
            f"api-{queue}", "benchmarks.outlast_api", self.temporal.address, env={**self._settings(queue), "OUTLAST_API__PORT": str(port)}
        )
        url = f"http://127.0.0.1:{port}"
        wait_for(api.process, lambda: _answers(f"{url}/health/ready"), name=api.name, log=api.log, seconds=60)
        return Outlast(queue, url, api, worker)

    def _settings(self, queue: str) -> dict[str, str]:
        return {"OUTLAST_DATABASE__URL": self.postgres.url(), "OUTLAST_TASK_QUEUE": queue, "OUTLAST_MODEL": INSTANT}


def _answers(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(url, timeout=2).status_code == 200
    return False


class _FlushingTemporal(TemporalServer):
    """A dev server whose every commit is on disk before it counts, as Postgres has it by default."""

    def _command(self) -> list[str | Path]:
        return ["synchronous=full" if part == "synchronous=normal" else part for part in super()._command()]


@contextmanager
def running_stack(*, flushed: bool) -> Iterator[Stack]:
    """Temporal on disk and Postgres, migrated.

    `flushed`: both wait for the disk at each commit, so a power cut takes nothing. Else neither does: what they commit outlives
    their processes and no power cut. Where one waits and the other does not, their times can't be compared.
    """
    folder = Path(tempfile.mkdtemp(prefix="outlast-bench-"))
    temporal = (_FlushingTemporal if flushed else TemporalServer)(folder, ui=False)
    stack = Stack(folder, temporal, PostgresServer(folder, options={} if flushed else {"fsync": "off"}))
    try:
        stack.temporal.start()
        stack.postgres.start()
        asyncio.run(migrate(DatabaseSettings(url=stack.postgres.url()), create=True))
        yield stack
    finally:
        for part in stack.parts:
            part.stop()
        stack.temporal.stop()
        stack.postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)
