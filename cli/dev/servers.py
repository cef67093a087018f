"""The servers that `outlast dev` starts: Temporal and Postgres, started side by side, started again when one dies."""

import asyncio
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from cli.dev.screen import Screen
from cli.endpoints import configured_namespace, configured_temporal
from cli.services.ports import next_free_port, port_is_free
from cli.services.postgres import NOT_DURABLE, PostgresServer
from cli.services.temporal import TemporalServer
from settings import Settings
from workflows.contracts.errors import SetupError

WATCH_SECONDS = 0.2
DEATHS = 5
DEATHS_WITHIN_SECONDS = 60.0


TEMPORARY = "ephemeral"
"""The folder inside the data folder that ends with an `outlast dev --ephemeral`."""


def state_folder(data_dir: Path, *, ephemeral: bool) -> Path:
    """Where an `outlast dev` keeps its state. What an ephemeral one that was killed has left behind is removed."""
    temporary = data_dir / TEMPORARY
    shutil.rmtree(temporary, ignore_errors=True)
    if not ephemeral:
        return data_dir
    temporary.mkdir(parents=True)
    return temporary


class Server(Protocol):
    """What both launchers can do."""

    def prepare(self) -> None: ...
    def launch(self) -> None: ...
    def wait_ready(self) -> None: ...
    def stop(self) -> None: ...

    @property
    def pid(self) -> int | None: ...

    @property
    def exit_code(self) -> int | None: ...

    @property
    def where(self) -> str: ...


class Servers:
    """Temporal and Postgres of one `state_folder`; the one of them that is configured elsewhere is not started here."""

    def __init__(self, settings: Settings, screen: Screen, folder: Path, *, ephemeral: bool, codec_url: str = "") -> None:
        self._screen = screen
        self._temporary = folder if ephemeral else None
        self.temporal_address = configured_temporal()
        self.temporal: TemporalServer | None = None
        self.postgres: PostgresServer | None = None
        if ephemeral and (settings.database.url or self.temporal_address):
            raise SetupError("--ephemeral starts a Temporal and a Postgres of its own: unset OUTLAST_DATABASE__URL and TEMPORAL_ADDRESS")
        if self.temporal_address is None:
            port, ui_port = self._ports(settings)
            self.temporal = TemporalServer(
                folder, port=port, ui_port=ui_port, durable=not ephemeral, namespace=configured_namespace(), codec_url=codec_url
            )
            self.temporal_address = self.temporal.address
        if not settings.database.url:
            self.postgres = PostgresServer(folder, options=NOT_DURABLE if ephemeral else {})

    @property
    def pids(self) -> dict[str, int]:
        """Who runs, by name."""
        return {name: server.pid for name, server in self._all().items() if server.pid is not None}

    def database_url(self, configured: str) -> str:
        """The database of our server, or the configured one."""
        return self.postgres.url() if self.postgres else configured

    async def start(self) -> None:
        """Returns when both are ready. Raises SetupError."""
        await asyncio.gather(*(self._start(name, server) for name, server in self._all().items()))

    async def watch(self, changed: Callable[[], None]) -> None:
        """Starts again what dies, and calls `changed` then. Raises SetupError for one that keeps dying."""
        await asyncio.gather(*(self._watch(name, server, changed) for name, server in self._all().items()))

    async def stop(self) -> None:
        """Ends both in order and removes what was temporary."""
        await asyncio.gather(*(asyncio.to_thread(server.stop) for server in self._all().values()))
        if self._temporary is not None:
            await asyncio.to_thread(shutil.rmtree, self._temporary, ignore_errors=True)

    def _all(self) -> dict[str, Server]:
        found: dict[str, Server | None] = {"temporal": self.temporal, "postgres": self.postgres}
        return {name: server for name, server in found.items() if server is not None}

    async def _start(self, name: str, server: Server) -> None:
        with self._screen.step(name) as details:
            await _bring_up(server)
            details.append(server.where)

    async def _watch(self, name: str, server: Server, changed: Callable[[], None]) -> None:
        deaths: list[float] = []
        while True:
            await asyncio.sleep(WATCH_SECONDS)
            if server.pid is not None:
                continue
            now = time.monotonic()
            deaths = [then for then in deaths if now - then < DEATHS_WITHIN_SECONDS] + [now]
            self._screen.say(f"{name} ended with code {server.exit_code}, starting it again")
            try:
                await _bring_up(server)
                changed()
                self._screen.say(f"{name} is back after {time.monotonic() - now:.2f} s, process {server.pid}")
            except SetupError as error:
                if len(deaths) >= DEATHS:
                    raise SetupError(f"{name} ended {DEATHS} times within {DEATHS_WITHIN_SECONDS:g} s: {error}") from error

    def _ports(self, settings: Settings) -> tuple[int, int]:
        chosen: list[int] = []
        for key, what in (("temporal_port", "Temporal"), ("temporal_ui_port", "Temporal's Web UI")):
            wanted: int = getattr(settings.dev, key)
            if key in settings.dev.model_fields_set:
                if not port_is_free(wanted):
                    raise SetupError(f"port {wanted} for {what} is taken (OUTLAST_DEV__{key.upper()})")
                chosen.append(wanted)
                continue
            chosen.append(next_free_port(wanted, besides=tuple(chosen)))
            if chosen[-1] != wanted:
                self._screen.say(f"port {wanted} is taken, {what} listens on {chosen[-1]}")
        return chosen[0], chosen[1]


async def _bring_up(server: Server) -> None:
    await asyncio.to_thread(server.prepare)
    server.launch()  # in the main thread: the kernel ends the child with the thread that made it
    await asyncio.to_thread(server.wait_ready)
