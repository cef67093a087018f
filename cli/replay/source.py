"""Where histories come from: files that somebody kept, or a server's runs."""

import asyncio
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from cli.listing import listed
from workflows.contracts.errors import SetupError
from workflows.contracts.naming import WORKFLOW_TYPES

FETCHED_AT_ONCE = 8
_AGO = re.compile(r"(\d+(?:\.\d+)?)([mhdw])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def kept(paths: list[Path]) -> list[Path]:
    """The histories that the arguments name: files, and the `.json` files of folders. Raises SetupError for one that isn't there."""
    found: list[Path] = []
    for path in paths:
        if not path.exists():
            raise SetupError(f"{path}: no such file or folder")
        inside = sorted(path.rglob("*.json")) if path.is_dir() else [path]
        if not inside:
            raise SetupError(f"{path}: no .json file in it")
        found += inside
    return found


def since(text: str, now: datetime) -> datetime:
    """A point in time: ISO 8601 with an offset, or how long ago (`90m`, `12h`, `7d`, `2w`). Raises SetupError for anything else."""
    try:
        if found := _AGO.fullmatch(text):
            return now - timedelta(**{_UNITS[found[2]]: float(found[1])})
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC)
    except OverflowError as error:
        raise SetupError(f"--since {text}: that is before the first year that there is; leave it out for all runs") from error
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise SetupError(f"--since {text}: give a time with its offset (2026-01-31T12:00:00Z) or how long ago (90m, 12h, 7d, 2w)")
    return moment


def asked(task_queue: str, query: str | None, begun_since: datetime | None) -> str:
    """The list filter: runs of this release's workflow types on its task queue, or those of `query`."""
    types = ", ".join(f"'{name}'" for name in WORKFLOW_TYPES)
    filters = [f"({query})" if query else f"WorkflowType IN ({types}) AND TaskQueue = '{task_queue}'"]
    if begun_since is not None:
        filters.append(f"StartTime >= '{begun_since.isoformat()}'")
    return " AND ".join(filters)


async def fetched(client: Client, query: str, limit: int | None, folder: Path, *, typed: str | None) -> AsyncIterator[Path]:
    """The histories of a server's runs, newest first, each as a file in `folder`. `typed`: the part of `query` that was given as `--query`.

    Raises SetupError, ServiceUnavailable and RPCError.
    """
    turnstile = asyncio.Semaphore(FETCHED_AT_ONCE)

    async def fetch(run: WorkflowExecution) -> Path | None:
        async with turnstile:
            try:
                history = await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
            except RPCError as error:
                if error.status.name == "NOT_FOUND":  # deleted since it was listed
                    return None
                raise
        path = folder / f"{run.run_id}.json"
        try:
            path.write_text(history.to_json())
        except OSError as error:
            raise SetupError(f"{path} can't be written: {error.strerror or error}") from error
        return path

    runs = await listed(client, query, limit, typed=typed)
    for fetching in asyncio.as_completed([fetch(run) for run in runs]):
        if (path := await fetching) is not None:
            yield path


__all__ = ["asked", "fetched", "kept", "since"]
