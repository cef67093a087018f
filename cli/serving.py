"""`outlast api` and `outlast worker`."""

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from cli.endpoints import Endpoints, api_url, find_endpoints
from cli.secrets import with_secrets
from cli.services.ports import listen, listen_near
from settings import Settings, WorkerSettings
from workflows.contracts.errors import SetupError

Say = Callable[[str], None]


async def run_worker(settings: Settings, stop: asyncio.Event, say: Say) -> None:
    """A worker until `stop`. Raises OutlastError if it can't start."""
    import worker

    found = with_secrets(find_endpoints(settings))
    forward_sdk_logs()
    ready = asyncio.Event()
    running = asyncio.create_task(worker.run(found.settings, stop, address=found.temporal, ready=ready))
    await _announced(running, ready, stop, lambda: say(f"worker ready, task queue {settings.task_queue}{version_of(settings.worker)}"))


def version_of(worker: WorkerSettings) -> str:
    """Its version as a worker names it when it starts; empty for one without."""
    from activities.db.routing import own_version, spelled

    return f", version {spelled(version)}" if (version := own_version(worker)) else ""


async def run_api(settings: Settings, stop: asyncio.Event, say: Say) -> None:
    """The HTTP API until `stop`. Raises OutlastError if it can't start."""
    from activities.db.migrate import ensure_usable

    forward_sdk_logs()
    found = with_secrets(find_endpoints(settings))
    sock = api_socket(found.settings, movable=found.record is not None, say=say)
    await ensure_usable(found.settings.database)
    started = asyncio.Event()
    serving = asyncio.create_task(serve_api(found, sock, stop, started=started))
    await _announced(serving, started, stop, lambda: say(f"api ready, {api_url(settings.api.host, sock.getsockname()[1])}"))


def forward_sdk_logs() -> None:
    """From now on what the SDK logs goes where everything else goes, in the same form. Once a process, before the first client."""
    from temporalio.runtime import Runtime, TelemetryConfig

    from activities.db.client import SDK_LOGS
    from cli.logs import keep_ids_out_of_messages

    keep_ids_out_of_messages()
    Runtime.set_default(Runtime(telemetry=TelemetryConfig(logging=SDK_LOGS)))


async def serve_api(found: Endpoints, sock: socket.socket, stop: asyncio.Event, *, started: asyncio.Event) -> None:
    """Serves the app on `sock` until `stop`, then lets requests end. `started` is set when it answers. Raises SetupError."""
    from api.app import create_app
    from api.server import ApiServer

    server = ApiServer(create_app(found.settings, durable=found.durable, temporal_address=found.temporal))
    running = asyncio.create_task(server.run([sock]))
    try:
        while not (server.started or running.done()):
            await asyncio.sleep(0.01)
        if not running.done():
            started.set()
        await first_of(running, stop.wait())
    finally:
        server.stop()
        await running
    if not stop.is_set():
        raise SetupError("the API ended while starting; its log says why")


async def _announced(running: "asyncio.Task[None]", ready: asyncio.Event, stop: asyncio.Event, announce: Callable[[], None]) -> None:
    """Waits for the end of what runs, and announces it once it is ready. If that fails it ends in order, as a signal ends it: a worker that
    is cancelled may wait for itself.
    """
    await first_of(running, ready.wait())
    try:
        if not running.done():
            announce()
    except Exception:
        stop.set()
        await running
        raise
    await running


async def first_of(task: "asyncio.Task[Any]", other: Coroutine[Any, Any, Any]) -> None:
    """Returns when either is done. The task is left as it is, the other one is cancelled."""
    waiting = asyncio.create_task(other)
    await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


def api_socket(settings: Settings, *, movable: bool, say: Say) -> socket.socket:
    """The socket that the API listens on.

    With `movable` the next port is taken if the default one is. A port that was asked for and is taken is an error. Raises
    SetupError, also for an address beyond loopback where nothing but the address vouches for callers.
    """
    host, port = settings.api.host, settings.api.port
    if settings.access.by_address and not settings.access.trust_network and not is_loopback(host):
        raise SetupError(
            f"OUTLAST_API__HOST={host}: in access mode `local` whoever reaches the API is admin, so it listens on loopback only "
            "(OUTLAST_ACCESS__TRUST_NETWORK=true if something else keeps strangers out)"
        )
    if movable and "port" not in settings.api.model_fields_set:
        return listen_near(host, port, say=say)
    try:
        return listen(host, port)
    except OSError as error:
        raise SetupError(f"can't listen on {host}:{port}: {error.strerror or error} (OUTLAST_API__HOST, OUTLAST_API__PORT)") from error


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
