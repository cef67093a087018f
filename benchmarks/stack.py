"""Everything that a run starts: the two servers, and a process for each part under measurement. All of it ends with the run."""

import asyncio
import base64
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
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
    """A child process of a run. `ready` is what its log says once it may be measured, `url` what answers then, if it is an api."""

    name: str
    command: list[str]
    env: dict[str, str]
    log: Path
    process: subprocess.Popen[bytes]
    ready: str = READY
    url: str = ""

    def wait(self) -> None:
        """Returns once it is ready. Raises SetupError."""
        wait_for(self.process, self._is_ready, name=self.name, log=self.log, seconds=60)

    def _is_ready(self) -> bool:
        return self.ready in self.log.read_text(errors="replace") and (not self.url or _answers(f"{self.url}/health/ready"))

    def stop(self) -> None:
        """Ends it in order."""
        end(self.process, (signal.SIGTERM, 15.0))

    def kill(self) -> None:
        """Ends it as a crash would."""
        end(self.process, (signal.SIGKILL, 5.0))


@dataclass
class Outlast:
    """An api and its worker on a task queue of their own."""

    worker: Part
    api: Part

    @property
    def url(self) -> str:
        """Where the api is."""
        return self.api.url


@dataclass
class Stack:
    """The servers of a run and what was started on them."""

    folder: Path
    temporal: TemporalServer
    postgres: PostgresServer
    parts: list[Part] = field(default_factory=list)

    def start(
        self, name: str, module: str, *arguments: str, env: Mapping[str, str] | None = None, ready: str = READY, url: str = ""
    ) -> Part:
        """Starts a module as a process of its own and returns at once. Call it from the main thread (cli/services/process.py)."""
        log = self.folder / f"{name}-{len(self.parts)}.log"
        command = [sys.executable, "-m", module, *arguments]
        whole = {**plain_environment(), **(env or {})}
        part = Part(name, command, whole, log, spawn(command, log=log, last_will=signal.SIGKILL, cwd=_ROOT, env=whole), ready, url)
        self.parts.append(part)
        return part

    def again(self, part: Part) -> Part:
        """Another process that does what `part` did."""
        log = self.folder / f"{part.name}-{len(self.parts)}.log"
        process = spawn(part.command, log=log, last_will=signal.SIGKILL, cwd=_ROOT, env=part.env)
        self.parts.append(replace(part, log=log, process=process))
        return self.parts[-1]

    def outlast(self, queue: str, *arguments: str, model: str = INSTANT, env: Mapping[str, str] | None = None) -> Outlast:
        """Starts a worker of ours with a model of the benchmarks, and an api; ready once `api` is. `env`: more settings of both."""
        env = {**self.settings(queue, model), **(env or {})}
        worker = self.start(f"worker-{queue}", "benchmarks.outlast_worker", self.temporal.address, *arguments, env=env)
        return Outlast(worker, self.api(queue, env))

    def api(self, queue: str, env: Mapping[str, str] | None = None) -> Part:
        """Starts `outlast api`; ready once it says that it has all it needs, a worker included."""
        port = free_port()
        env = {**(env or self.settings(queue, INSTANT)), "OUTLAST_API__PORT": str(port)}
        return self.start(f"api-{queue}", "cli.main", "api", env=env, ready="api ready", url=f"http://127.0.0.1:{port}")

    def settings(self, queue: str, model: str) -> dict[str, str]:
        """The environment of `outlast api` and `outlast worker` on a task queue of this run."""
        return {
            "OUTLAST_DATABASE__URL": self.postgres.url(),
            "OUTLAST_SIGNING__KEYS": f"bench:{base64.b64encode(bytes(32)).decode()}",
            "OUTLAST_TASK_QUEUE": queue,
            "OUTLAST_MODEL": model,
            "OUTLAST_LOG__LEVEL": "warning",
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
