"""Replays a batch and says what it showed."""

import os
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from activities.db.encryption import codec_of
from cli.endpoints import find_endpoints, temporal_client
from cli.progress import bar
from cli.replay import report
from cli.replay.pool import TIMEOUT, Children
from cli.replay.source import asked, fetched, kept, since
from cli.replay.verdict import PROVES_NOTHING, Verdict
from settings import Settings
from workflows.contracts.errors import SetupError


@dataclass(frozen=True)
class Batch:
    """Which histories, and how. `limit` None: all that are listed; `jobs` 0: as many processes as there are processors.
    `timeout`: seconds for one history.
    """

    files: list[Path]
    from_server: bool = False
    query: str | None = None
    limit: int | None = None
    since: str | None = None
    save: Path | None = None
    jobs: int = 0
    junit: Path | None = None
    timeout: float = TIMEOUT


async def run_replay(settings: Settings, batch: Batch) -> bool:
    """Replays the batch and prints the summary. True if no history speaks against the code. Raises SetupError, ServiceUnavailable."""
    _check(settings, batch)
    began = time.perf_counter()
    verdicts = await (_of_server(settings, batch) if batch.from_server else _of_files(settings, batch))
    if not verdicts:
        raise SetupError("there is no history to replay: nothing was proven")
    console = Console(width=max(Console().width, report.WIDTH))
    console.print(report.summary(verdicts, time.perf_counter() - began))
    for told in report.differences(verdicts):
        console.print(told, markup=False, highlight=False, soft_wrap=True)
    if batch.junit is not None:
        try:
            report.write_junit(verdicts, batch.junit)
        except OSError as error:
            raise SetupError(f"--junit {batch.junit}: {error.strerror}") from error
    if all(verdict.kind in PROVES_NOTHING for verdict in verdicts):
        raise SetupError("no worker has completed a task of these runs yet, or their sessions were erased: nothing was proven")
    return all(verdict.passes for verdict in verdicts)


def _check(settings: Settings, batch: Batch) -> None:
    """What can be said before the batch. Raises SetupError."""
    given = {"--query": batch.query, "--since": batch.since, "--limit": batch.limit, "--save": batch.save}
    of_server = [name for name, value in given.items() if value is not None]
    if batch.from_server and batch.files:
        raise SetupError(f"{batch.files[0]}: with --from-server no files are replayed; leave out one of the two")
    if not batch.from_server and of_server:
        raise SetupError(f"{of_server[0]} is for the runs of a server: it goes with --from-server")
    if not batch.from_server and not batch.files:
        raise SetupError("name histories to replay, or --from-server")
    codec_of(settings.codec.keys)
    if batch.junit is not None:
        absent = not batch.junit.exists()
        try:
            batch.junit.open("ab").close()
        except OSError as error:
            raise SetupError(f"--junit {batch.junit}: {error.strerror}") from error
        if absent:
            batch.junit.unlink()


async def _of_files(settings: Settings, batch: Batch) -> list[Verdict]:
    paths = kept(batch.files)

    async def each() -> AsyncIterator[Path]:
        for path in paths:
            yield path

    return await _judged(each(), len(paths), batch, settings.data_dir)


async def _of_server(settings: Settings, batch: Batch) -> list[Verdict]:
    found = find_endpoints(settings)
    begun_since = since(batch.since, datetime.now(UTC)) if batch.since else None
    query = asked(settings.task_queue, batch.query, begun_since)
    with tempfile.TemporaryDirectory(prefix="outlast-replay-") as temporary:
        folder = batch.save or Path(temporary)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SetupError(f"--save {folder}: {error.strerror}") from error
        async with temporal_client(found) as client:
            paths = fetched(client, query, batch.limit, folder, typed=batch.query)
            return await _judged(paths, batch.limit, batch, settings.data_dir)


async def _judged(paths: AsyncIterator[Path], total: int | None, batch: Batch, data_dir: Path) -> list[Verdict]:
    verdicts: list[Verdict] = []
    with bar() as progress:
        task = progress.add_task("replaying", total=total)

        def told(verdict: Verdict) -> None:
            # What is fetched and not saved is gone at the end.
            source = verdict.source if batch.save or not batch.from_server else "--save FOLDER keeps its history"
            verdicts.append(verdict.model_copy(update={"source": source}))
            progress.advance(task)

        await Children(batch.jobs or os.cpu_count() or 1, data_dir, batch.timeout).judge(paths, told)
    return verdicts


__all__ = ["Batch", "run_replay"]
