"""Real `outlast` processes that a test starts, asks, freezes, kills and starts again."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import psutil

from cli.services.process import plain_environment, send, spawn
from tests.ports import free_port
from tests.services import SIGNING_KEY

ROOT = Path(__file__).parents[2]
OUTLAST = (sys.executable, "-m", "cli.main")
READY_SECONDS = 60.0
SIGNING = {"OUTLAST_SIGNING__KEYS": SIGNING_KEY}
"""What an API beside no `outlast dev` does not start without."""


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """What a program is started with: nothing of ours that would configure it, then `more`."""
    return plain_environment() | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"} | dict(more or {})


class Program:
    """One `outlast …` process. `name` tells its log from others in `folder`. It ends with the test run, however that ends."""

    def __init__(self, folder: Path, name: str, *command: str, env: Mapping[str, str]) -> None:
        self.log = folder / f"{name}.log"
        self._folder = folder
        self._command = (*OUTLAST, *command)
        self._env = environment(env)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        """The process. It has to be started first."""
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def output(self) -> str:
        """Everything that it ever wrote, restarts included."""
        return self.log.read_text() if self.log.exists() else ""

    def start(self) -> "Program":
        """Starts it, again after it ended."""
        self._process = spawn(self._command, log=self.log, last_will=signal.SIGKILL, cwd=self._folder, env=self._env)
        return self

    async def says(self, text: str, seconds: float = READY_SECONDS, *, times: int = 1) -> None:
        """Waits until its output holds a text (so many times). It must not end before."""
        async with asyncio.timeout(seconds):
            while self.output.count(text) < times:
                assert self.process.poll() is None, self.output
                await asyncio.sleep(0.02)

    async def ended(self, seconds: float = 60.0) -> int:
        """Waits until it has ended; its exit code."""
        async with asyncio.timeout(seconds):
            while (code := self.process.poll()) is None:
                await asyncio.sleep(0.02)
        return code

    async def stop(self, how: signal.Signals = signal.SIGINT) -> int:
        """Asks it to stop and waits; its exit code."""
        self.process.send_signal(how)
        return await self.ended()

    def kill(self) -> None:
        """SIGKILL: it gets no chance to do anything."""
        self.process.kill()
        self.process.wait()

    def freeze(self) -> None:
        """It stands still, its connections stay open."""
        send(psutil.Process(self.pid), signal.SIGSTOP)

    def thaw(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def children(self) -> list[psutil.Process]:
        """The processes below it."""
        return psutil.Process(self.pid).children(recursive=True)

    def finish(self) -> None:
        """Whatever state it is in: it is gone afterwards."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Programs:
    """The programs of one test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._started: list[Program] = []

    def start(self, *command: str, env: Mapping[str, str] | None = None, name: str = "") -> Program:
        """Starts `outlast <command>`."""
        program = Program(self.folder, name or f"{len(self._started)}-{command[0]}", *command, env=env or {})
        self._started.append(program)
        return program.start()

    async def run(self, *command: str, env: Mapping[str, str] | None = None, seconds: float = 60.0) -> tuple[int, str]:
        """Runs `outlast <command>` to its end; its exit code and output."""
        program = self.start(*command, env=env)
        return await program.ended(seconds), program.output

    def finish(self) -> None:
        for program in self._started:
            program.finish()


class Dev:
    """`outlast dev` on a data folder, on free ports."""

    def __init__(self, programs: Programs, data: Path, *options: str, env: Mapping[str, str] | None = None) -> None:
        self.data = data
        self.port = free_port()
        self.env = {
            "OUTLAST_DATA_DIR": str(data),
            "OUTLAST_API__PORT": str(self.port),
            "OUTLAST_DEV__TEMPORAL_PORT": str(free_port()),
            "OUTLAST_DEV__TEMPORAL_UI_PORT": str(free_port()),
            "OUTLAST_WORKER_SHUTDOWN_SECONDS": "2",
            **(env or {}),
        }
        self.program = programs.start("dev", *options, env=self.env)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def record(self) -> dict[str, Any]:
        """dev.json."""
        found: dict[str, Any] = json.loads((self.data / "dev.json").read_text())
        return found

    async def ready(self, *, starts: int = 1) -> None:
        """Waits until it says so, for the so manieth time."""
        await self.program.says("Ctrl-C stops everything", times=starts)
        await ready(self.url)


async def ready(url: str, seconds: float = READY_SECONDS) -> None:
    """Waits until an API says that it may be sent work."""
    async with httpx.AsyncClient(base_url=url, timeout=30) as http, asyncio.timeout(seconds):
        while True:
            try:
                if (await http.get("/health/ready")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


async def chat(url: str, content: str, **body: Any) -> dict[str, Any]:
    """Runs a turn of the demo profile; its answer."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        answer = await http.post("/api/chat", json={"profile": "demo", "content": content, **body})
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found


async def gone(*pids: int, seconds: float = 60.0) -> None:
    """Waits until none of these processes is left."""
    async with asyncio.timeout(seconds):
        while any(alive(pid) for pid in pids):
            await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs (one that ended and was not collected does not)."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def at_home(folder: Path) -> list[str]:
    """Processes that work in or on a folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and (str(folder) in " ".join(process.cmdline()) or process.cwd().startswith(str(folder))):
                found.append(f"{process.pid} {process.name()}")
        except psutil.Error:
            continue
    return found
