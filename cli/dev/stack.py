"""The story of `outlast dev`: lock the folder, start the servers, the schema, the worker and the API, watch them, end them in order."""

import asyncio
import importlib
import os
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from cli.dev.lock import FolderLock
from cli.dev.screen import EPHEMERAL, Screen
from cli.dev.servers import Servers, state_folder
from cli.endpoints import Endpoints, api_url, temporal_client, with_database, with_origins
from cli.record import DevRecord, remove_record
from cli.secrets import furnished, keep_secrets
from cli.serving import api_socket, first_of, forward_sdk_logs, serve_api
from settings import Settings, WorkerSettings
from workflows.contracts.errors import SetupError

WORKER_AGAIN_SECONDS = 1.0
END_SECONDS = 10.0
"""How long API or worker may take to end, beyond the grace of running steps; then the servers end under them."""


async def run_dev(settings: Settings, stop: asyncio.Event, *, ephemeral: bool, encrypted: bool) -> None:
    """Everything until `stop`. Raises SetupError, with everything ended, if a part can't start."""
    settings = settings.model_copy(update={"data_dir": settings.data_dir.expanduser().absolute()})
    screen = Screen()
    with FolderLock(settings.data_dir):
        screen.say(f"outlast dev, data in {settings.data_dir}")
        if ephemeral:
            screen.say(EPHEMERAL)
        await Stack(settings, screen, ephemeral=ephemeral, encrypted=encrypted).run(stop)


class Stack:
    """What runs in one `outlast dev`."""

    def __init__(self, settings: Settings, screen: Screen, *, ephemeral: bool, encrypted: bool) -> None:
        folder = state_folder(settings.data_dir, ephemeral=ephemeral)
        self._secrets = keep_secrets(folder, encrypted=encrypted and not settings.codec.keys)
        # One worker that always runs the code that is there has no use for versions.
        self._settings = settings = furnished(settings, self._secrets).model_copy(update={"worker": WorkerSettings()})
        self._screen = screen
        self._socket = api_socket(settings, movable=True, say=screen.say)
        self._url = api_url(settings.api.host, self._socket.getsockname()[1])
        codec_url = f"{self._url}/codec" if settings.codec.keys else ""
        self._servers = Servers(settings, screen, folder, ephemeral=ephemeral, codec_url=codec_url)
        self._durable = not ephemeral
        self._endings: dict[str, asyncio.Event] = {"api": asyncio.Event(), "worker": asyncio.Event()}
        self._running: dict[str, asyncio.Task[None]] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Starts everything, waits for `stop` or for a part that ends for good, ends everything."""
        try:
            await unless(stop, self._start())
            if not stop.is_set():
                await self._until(stop)
        finally:
            await self._end()

    async def _start(self) -> None:
        if self._settings.profiles or self._settings.profile:
            # Somebody's own files: what is wrong with them is said before anything is started.
            await asyncio.to_thread(_check_profiles, self._settings)
        # The imports of model libraries take longer than the servers' start; they overlap.
        imports = asyncio.create_task(asyncio.to_thread(_import_parts))
        await self._servers.start()
        found = self._found()
        await imports
        forward_sdk_logs()
        await self._bring_schema(found)
        await self._start_part(
            "worker", self._keep_worker(found, ready := asyncio.Event()), ready, f"task queue {self._settings.task_queue}"
        )
        serving = serve_api(found, self._socket, self._endings["api"], started=(started := asyncio.Event()))
        await self._start_part("api", serving, started, self._url)
        record = DevRecord(
            api=self._url,
            temporal=found.temporal or "",
            temporal_ui=self._servers.temporal.ui_url if self._servers.temporal else "",
            database_url=found.settings.database.url,
            durable=self._durable,
            secrets=str(self._secrets),
        )
        self._write(record)
        if self._servers.pids:
            self._running["watch"] = asyncio.create_task(self._servers.watch(lambda: self._write(record)))
        self._screen.ready(record, str(self._settings.data_dir), self._settings.access.mode)

    def _write(self, record: DevRecord) -> None:
        pids = {"dev": os.getpid(), **self._servers.pids}
        record.model_copy(update={"pids": pids}).write(self._settings.data_dir)

    def _found(self) -> Endpoints:
        database = self._settings.database
        # A database of one's own may come later; the one that was just started has to be there.
        required = database.required if "required" in database.model_fields_set else self._servers.postgres is not None
        settings = with_database(self._settings, self._servers.database_url(database.url), migrate_on_start=True, required=required)
        if self._settings.codec.keys and self._servers.temporal is not None:
            settings = with_origins(settings, self._servers.temporal.ui_origins)
        record = None if self._durable else DevRecord(api="", temporal="", database_url="", durable=False)
        return Endpoints(settings, self._servers.temporal_address, record)

    async def _bring_schema(self, found: Endpoints) -> None:
        """Both servers' schemas. A Temporal on data of an older release has the search attributes of that one."""
        from activities.db.migrate import ensure_usable
        from activities.search_attributes import register

        with self._screen.step("schema") as details:
            status = await ensure_usable(found.settings.database)
            details.append(status.current or status.error or status.state)
            if self._servers.temporal is not None:
                async with temporal_client(found) as client:
                    await register(client)

    async def _start_part(self, name: str, part: Coroutine[Any, Any, None], ready: asyncio.Event, where: str) -> None:
        with self._screen.step(name) as details:
            task = self._running[name] = asyncio.create_task(part)
            await first_of(task, ready.wait())
            if task.done():
                await task
                raise SetupError(f"the {name} ended while starting")
            details.append(where)

    async def _keep_worker(self, found: Endpoints, ready: asyncio.Event) -> None:
        """A worker that starts again after a fault, as a supervisor would start its process again."""
        import worker

        while not self._endings["worker"].is_set():
            try:
                await worker.run(found.settings, self._endings["worker"], address=found.temporal, ready=ready)
            except Exception as error:
                if not ready.is_set() or isinstance(error, SetupError):
                    raise
                self._screen.say(f"worker ended ({error}), starting it again")
                await asyncio.sleep(WORKER_AGAIN_SECONDS)

    async def _until(self, stop: asyncio.Event) -> None:
        waiting = asyncio.create_task(stop.wait())
        done, _ = await asyncio.wait({waiting, *self._running.values()}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        for task in done - {waiting}:
            await task
            raise SetupError("a part of outlast dev ended by itself")

    async def _end(self) -> None:
        """API first, so that nothing new comes in; then the worker, which hands its work back; then the servers under them."""
        self._screen.say("stopping")
        if watch := self._running.pop("watch", None):
            watch.cancel()
        for name, ending in self._endings.items():
            ending.set()
            if task := self._running.get(name):
                await asyncio.wait({task}, timeout=self._settings.worker_shutdown_seconds + END_SECONDS)
        self._socket.close()
        await self._servers.stop()
        remove_record(self._settings.data_dir)
        self._screen.say("stopped")


async def unless(stop: asyncio.Event, work: Coroutine[Any, Any, None]) -> None:
    """Does the work, unless `stop` is set first: then it is abandoned."""
    task = asyncio.create_task(work)
    await first_of(task, stop.wait())
    if not task.done():
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        return
    await task


def _check_profiles(settings: Settings) -> None:
    from profiles.loading import load_profiles

    load_profiles(settings)


def _import_parts() -> None:
    for name in ("worker", "api.app", "api.server"):
        importlib.import_module(name)
