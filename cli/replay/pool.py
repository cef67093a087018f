"""The processes that replay side by side."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path

from cli.replay.verdict import Verdict
from cli.services.process import end_with

LINE_LIMIT = 1 << 20
TIMEOUT = 120.0
"""Seconds for one history, the start of its process included: thousands of events take one or two."""


class Children:
    """Processes that replay one history each at a time. One that dies, or takes more than `timeout` seconds, takes its history with it,
    not the batch.
    """

    def __init__(self, count: int, data_dir: Path, timeout: float = TIMEOUT) -> None:
        self._timeout = timeout
        self._count = count
        self._command = [sys.executable, "-m", "cli.replay.child", str(data_dir)]

    async def judge(self, paths: AsyncIterator[Path], told: Callable[[Verdict], None]) -> None:
        """Replays all of `paths` and tells each verdict as it comes about. Raises what `paths` raises."""
        waiting: asyncio.Queue[Path | None] = asyncio.Queue(self._count * 4)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._feed(paths, waiting))
                for _ in range(self._count):
                    group.create_task(self._work(waiting, told))
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None

    async def _feed(self, paths: AsyncIterator[Path], waiting: asyncio.Queue[Path | None]) -> None:
        async for path in paths:
            await waiting.put(path)
        for _ in range(self._count):
            await waiting.put(None)

    async def _work(self, waiting: asyncio.Queue[Path | None], told: Callable[[Verdict], None]) -> None:
        child: Process | None = None
        try:
            while (path := await waiting.get()) is not None:
                if child is None or child.returncode is not None:
                    child = await self._start()
                told(await self._judge(child, path))
            if child is not None and child.stdin is not None:
                child.stdin.close()
                await child.wait()
        finally:
            if child is not None and child.returncode is None:
                await _end(child)

    async def _start(self) -> Process:
        """A process that Ctrl-C in the terminal doesn't reach: this one ends it, and the kernel does if this one was killed."""
        parent = os.getpid()
        return await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            limit=LINE_LIMIT,
            start_new_session=True,
            preexec_fn=lambda: end_with(parent, signal.SIGKILL),
        )

    async def _judge(self, child: Process, path: Path) -> Verdict:
        assert child.stdin is not None and child.stdout is not None
        known = Verdict(source=str(path), workflow_type="-", workflow_id=path.stem, kind="failed")
        try:
            async with asyncio.timeout(self._timeout):
                child.stdin.write(json.dumps(str(path)).encode() + b"\n")
                await child.stdin.drain()
                if line := await child.stdout.readline():
                    known = Verdict.model_validate_json(line)
                if line := await child.stdout.readline():
                    return Verdict.model_validate_json(line)
                detail = f"its process ended with {await child.wait()}"
        except (BrokenPipeError, ConnectionResetError):
            detail = f"its process ended with {await child.wait()}"
        except TimeoutError:
            await _end(child)
            detail = f"no end after {self._timeout:g} s, the limit for one history (--timeout)"
        return known.model_copy(update={"kind": "failed", "detail": detail})


async def _end(child: Process) -> None:
    with suppress(ProcessLookupError):
        child.kill()
    await child.wait()


__all__ = ["Children"]
