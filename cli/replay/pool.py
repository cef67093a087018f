"""The processes that replay side by side."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from cli.replay.verdict import Verdict

LINE_LIMIT = 1 << 20


class Children:
    """Processes that replay one history each at a time. One that dies takes its history with it, not the batch."""

    def __init__(self, count: int, data_dir: Path) -> None:
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
                    child = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, limit=LINE_LIMIT)
                told(await _judge(child, path))
        finally:
            if child is not None and child.stdin is not None:
                child.stdin.close()
                await child.wait()


async def _judge(child: Process, path: Path) -> Verdict:
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdin.write(json.dumps(str(path)).encode() + b"\n")
        await child.stdin.drain()
        line = await child.stdout.readline()
    except (BrokenPipeError, ConnectionResetError):
        line = b""
    if line:
        return Verdict.model_validate_json(line)
    code = await child.wait()
    return Verdict(source=str(path), workflow_type="-", workflow_id=path.stem, kind="failed", detail=f"its process ended with {code}")


__all__ = ["Children"]
