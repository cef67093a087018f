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
from benchmarks.process import READY
from cli.services.ports import free_port
from cli.services.postgres import PostgresServer
from cli.services.process import end, plain_environment, spawn, wait_for
from cli.services.temporal import TemporalServer
from settings import DatabaseSettings

_ROOT = Path(__file__).parents[1]


@dataclass
class Part:
    """A child process of a run."""

    name: str
    command: list[str]
    env: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes]

    def said(self, what: str) -> bool:
        """Whether its log has this."""
        return what in self.log.read_text(errors="replace")

    def stop(self) -> None:
        """Ends it in order."""
        end(self.process, (signal.SIGTERM, 15.0))

    def kill(self) -> None:
        """Ends it as a crash would."""
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

    def start(self, name: str, module: str, *arguments: str, env: Mapping[str, str] | None = None, ready: str = READY) -> Part:
        """Starts a module as a process of its own and waits until it says that it is ready. Raises SetupError."""
        return self._launch(name, [sys.executable, "-m", module, *arguments], {**plain_environment(), **(env or {})}, ready)

    def again(self, part: Part, ready: str = READY) -> Part:
        """Another process that does what `part` did. Raises SetupError."""
        return self._launch(part.name, part.command, part.env, ready)

    def _launch(self, name: str, command: list[str], env: dict[str, str], ready: str) -> Part:
        log = self.folder / f"{name}-{len(self.parts)}.log"
        part = Part(name, command, env, log, spawn(command, log=log, last_will=signal.SIGKILL, cwd=_ROOT, env=env))
        self.parts.append(part)
        wait_for(part.process, lambda: part.said(ready), name=name, log=log, seconds=60)
        return part

    def outlast(self, queue: str, *arguments: str) -> Outlast:
        """Starts a worker of ours with the instant model, and an api. Raises SetupError."""
        worker = self.start(
            f"worker-{queue}", "benchmarks.outlast_worker", self.temporal.address, *arguments, env=self.settings(queue, INSTANT)
        )
        return Outlast(queue, *self.api(queue), worker)

    def api(self, queue: str) -> tuple[str, Part]:
        """Starts `outlast api` and waits until it says that it has all it needs, a worker included. Raises SetupError."""
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        env = {**self.settings(queue, INSTANT), "OUTLAST_API__PORT": str(port)}
        part = self.start(f"api-{queue}", "cli.main", "api", env=env, ready="api ready")
        wait_for(part.process, lambda: _answers(f"{url}/health/ready"), name=part.name, log=part.log, seconds=60)
        return url, part

    def settings(self, queue: str, model: str) -> dict[str, str]:
        """The environment of `outlast api` and `outlast worker` on a task queue of this run."""
        return {
            "OUTLAST_DATABASE__URL": self.postgres.url(),
            "OUTLAST_TASK_QUEUE": queue,
            "OUTLAST_MODEL": model,
            "OUTLAST_LOG_LEVEL": "warning",
            "TEMPORAL_ADDRESS": self.temporal.address,
        }


def _answers(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(url, timeout=2).status_code == 200
    return False


class _FlushingTemporal(TemporalServer):
    """A dev server whose every commit is on disk before it counts, as Postgres has it by default."""

    def _command(self) -> list[str | Path]:
        return ["synchronous=full" if part == "synchronous=normal" else part for part in super()._command()]


@contextmanager
def running_stack(*, flushed: bool = False) -> Iterator[Stack]:
    """Temporal on disk and Postgres, migrated.

    `flushed`: both wait for the disk at each commit, so a power cut takes nothing. Else neither does: what they commit outlives
    their processes but no power cut. Where one waits and the other does not, their times can't be compared.
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
            part.kill()
        stack.temporal.stop()
        stack.postgres.stop()
        shutil.rmtree(folder, ignore_errors=True)
