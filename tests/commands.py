"""`outlast` as people run it: a process of its own, of this tree or another one, that no setting of ours reaches."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOWHERE: Mapping[str, str] = {}


@asynccontextmanager
async def began(
    *arguments: object, cwd: Path = ROOT, at: Mapping[str, str] = NOWHERE, stdout: int = PIPE
) -> AsyncIterator[asyncio.subprocess.Process]:
    """The command, in a process group of its own. `at` is what its environment says of where everything is. `stdout`: a descriptor."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OUTLAST_", "TEMPORAL_"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", *map(str, arguments)),
        cwd=cwd,
        env={**environment, "OUTLAST_DATA_DIR": "none", "COLUMNS": "120", **at},
        stdout=stdout,
        stderr=PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def ran(
    *arguments: object, cwd: Path = ROOT, at: Mapping[str, str] = NOWHERE, seconds: float = 60.0, stdout: int = PIPE
) -> tuple[int | None, str, str]:
    """Runs the command, which may take so long; exit code, stdout (nothing, where it goes elsewhere) and stderr."""
    async with began(*arguments, cwd=cwd, at=at, stdout=stdout) as process:
        out, err = await asyncio.wait_for(process.communicate(), seconds)
    return process.returncode, (out or b"").decode(), err.decode()
