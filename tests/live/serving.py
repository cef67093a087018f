"""The small model's server as a process of its own, as a provider is."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

from cli.services.process import end, last_line, spawn
from tests.chaos.processes import ROOT, environment

START_SECONDS = 120.0


class ModelServer:
    """`python -m tests.live.server` on a free port; `log` gets what it says."""

    def __init__(self, log: Path) -> None:
        self._log = log
        command = (sys.executable, "-m", "tests.live.server")
        self._process: subprocess.Popen[bytes] = spawn(command, log=log, last_will=signal.SIGKILL, cwd=ROOT, env=environment())
        self.url = ""
        """What goes into OPENAI_BASE_URL."""
        self.model = ""

    async def ready(self) -> None:
        """Waits until it takes requests."""
        async with asyncio.timeout(START_SECONDS):
            while b"\n" not in self._log.read_bytes():
                assert self._process.poll() is None, last_line(self._log)
                await asyncio.sleep(0.05)
        said = json.loads(self._log.read_text().splitlines()[0])
        self.url, self.model = said["url"], said["model"]

    async def requests(self) -> list[dict[str, Any]]:
        """What it was asked so far, and how long that took."""
        async with httpx.AsyncClient() as http:
            found: list[dict[str, Any]] = (await http.get(f"{self.url.removesuffix('/v1')}/requests")).json()
            return found

    def stop(self) -> None:
        end(self._process, (signal.SIGINT, 5.0))
