"""The composition root of a worker: settings → connections, models, profiles → activities → Worker."""

import asyncio
import gc
import hashlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.common import VersioningBehavior
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError
from temporalio.worker import Interceptor, Worker, WorkerDeploymentConfig
from temporalio.worker.workflow_sandbox import SandboxRestrictions

from activities.db.client import SDK_LOGS, connect, words_of_core
from activities.db.locks import StepLocks
from activities.db.migrate import ensure_usable
from activities.db.pool import Database
from activities.db.routing import own_version, routing_of
from activities.db.storage import Storage
from activities.erasures import Erasures
from activities.kit import Kit
from activities.llm.models import Models
from activities.observing import Identifying
from activities.principal_erasures import PrincipalErasures
from activities.retention import retaining_events
from activities.running import Running
from activities.sandbox import Sandbox
from activities.search_attributes import registered
from activities.sessions import Sessions
from activities.steps import Steps
from activities.tools import Tools
from activities.turns import Turns
from profiles.loading import load_profiles
from settings import Settings, WorkerSettings
from workflows.contracts.errors import ServiceUnavailable, SetupError
from workflows.contracts.policies import BEAT_EVERY_SECONDS, STICKY_SECONDS
from workflows.erasure import ErasureWorkflow
from workflows.principal_erasure import PrincipalErasureWorkflow
from workflows.session import SessionWorkflow

log = logging.getLogger(__name__)

OnFault = Callable[[BaseException], Awaitable[None]]

ENDING_SECONDS = 5.0
"""How long a worker that can't go on may take to end, beyond the grace of running steps."""

WORKFLOWS = [SessionWorkflow, ErasureWorkflow, PrincipalErasureWorkflow]

PASSED_THROUGH = (
    "workflows.model.attachment",
    "workflows.model.base",
    "workflows.model.budget",
    "workflows.model.call",
    "workflows.model.session",
    "workflows.model.state",
    "workflows.model.turn",
    "workflows.contracts.carried",
    "workflows.contracts.erasures",
    "workflows.contracts.errors",
    "workflows.contracts.horizon",
    "workflows.contracts.inputs",
    "workflows.contracts.json_text",
    "workflows.contracts.naming",
    "workflows.contracts.policies",
    "workflows.contracts.principal_erasures",
    "workflows.contracts.search_attributes",
    "workflows.contracts.sessions",
    "workflows.contracts.steps",
    "workflows.contracts.telemetry",
    "workflows.contracts.tools",
    "workflows.contracts.turns",
)
"""Data and contracts, by exact name. Rules and workflows stay guarded: a module that passes through can call the clock unseen."""


TRACED = ("opentelemetry",)
"""What passes too where a worker traces: its interceptors open spans around the handlers of workflows, which know nothing of it."""


def workflow_runner(*more: str) -> Sandbox:
    """The sandbox that workers and replays run workflows in."""
    return Sandbox(restrictions=SandboxRestrictions.default.with_passthrough_modules(*PASSED_THROUGH, *more))


def _interceptors(traced: bool) -> list[Interceptor]:
    if not traced:
        return [Identifying()]
    from activities.tracing import worker_interceptors  # only here: it needs the packages of `outlast[otel]`

    return [Identifying(), *worker_interceptors()]


@cache
def measured(address: str) -> Runtime | None:
    """A runtime whose metrics, the SDK's and our own, are served at `address` (`host:port`, path `/metrics`); None without one.

    One a process, which keeps the port for workers that come one after the other: that of one that is gone may be in use for a while.
    Raises SetupError if nothing can listen there.
    """
    if not address:
        return None
    try:
        return Runtime(
            telemetry=TelemetryConfig(logging=SDK_LOGS, metrics=PrometheusConfig(bind_address=address, durations_as_seconds=True))
        )
    except (RuntimeError, ValueError) as error:
        raise SetupError(f"OUTLAST_METRICS__WORKER_ADDRESS={address}: nothing can listen there: {error}") from error


def leave_to_itself() -> None:
    """What the process has made by now stays. The collector does not look at it again, least of all while a session is replayed."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@asynccontextmanager
async def open_kit(settings: Settings, database: Database, storage: Storage) -> AsyncIterator[Kit]:
    """What activities share. Profiles and models are built before the first task comes. Raises SetupError."""
    profiles = load_profiles(settings)
    models = Models(settings)
    models.warm(profile.model for profile in profiles.values())
    locks = await StepLocks.open(settings.database)
    leave_to_itself()
    try:
        yield Kit(settings=settings, db=database, storage=storage, locks=locks, models=models, profiles=profiles)
    finally:
        await locks.close()
        await models.close()


def versioned(settings: WorkerSettings) -> WorkerDeploymentConfig | None:
    """Which version of which deployment a worker is, and what its workflows do when another one becomes current; None: not versioned."""
    if (version := own_version(settings)) is None:
        return None
    return WorkerDeploymentConfig(
        version=version,
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior[settings.versioning.upper()],
    )


@cache
def flow_digest() -> str:
    """Names the flow's code, for workers without a version and for replays: Temporal notes it with each decision (search attribute `BuildIds`).

    The SDK's own default reads every module that is loaded: a second's work of each process that runs workflows.
    """
    digest = hashlib.sha256()
    for source in sorted(Path(inspect.getfile(SessionWorkflow)).parent.rglob("*.py")):
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def implementations(client: Client, kit: Kit) -> list[Callable[..., Any]]:
    """Every activity of workflows/contracts."""
    running = Running(kit.locks)
    steps, tools, turns, sessions = Steps(kit, running), Tools(kit, running), Turns(kit), Sessions(kit)
    erasures, principals = Erasures(kit, client), PrincipalErasures(kit, client)
    return [
        steps.run_step,
        tools.run_tool,
        tools.settle_call,
        turns.hand_over,
        turns.end_turn,
        turns.repair_calls,
        turns.note_steering,
        turns.record_refusal,
        turns.load_head,
        sessions.post_card,
        sessions.amend_session,
        sessions.remind,
        erasures.erase_rows,
        erasures.find_runs,
        erasures.delete_runs,
        erasures.erase_payloads,
        erasures.verify_erasure,
        principals.begin_principal_erasure,
        principals.find_sessions,
        principals.erase_sessions,
        principals.verify_principal_erasure,
    ]


def build_worker(client: Client, kit: Kit, workflows: Sequence[type] = WORKFLOWS, *, on_fault: OnFault | None = None) -> Worker:
    """A worker on the settings' task queue. `on_fault` hears why it can't go on, before it ends."""
    traced, version = kit.settings.tracing.enabled, versioned(kit.settings.worker)
    return Worker(
        client,
        task_queue=kit.settings.task_queue,
        workflows=workflows,
        activities=implementations(client, kit),
        deployment_config=version,
        build_id=None if version else flow_digest(),
        interceptors=_interceptors(traced),
        workflow_runner=workflow_runner(*(TRACED if traced else ())),
        graceful_shutdown_timeout=timedelta(seconds=kit.settings.worker_shutdown_seconds),
        max_heartbeat_throttle_interval=timedelta(seconds=BEAT_EVERY_SECONDS),
        default_heartbeat_throttle_interval=timedelta(seconds=BEAT_EVERY_SECONDS),
        sticky_queue_schedule_to_start_timeout=timedelta(seconds=STICKY_SECONDS),
        max_concurrent_activities=500,
        max_cached_workflows=kit.settings.worker_cached_sessions,
        on_fatal_error=on_fault,
    )


async def tell_routing(client: Client, settings: Settings) -> None:
    """Warns in the log if new sessions do not come to this worker. A server that won't say where they go keeps no worker from running."""
    try:
        routing = await routing_of(client, settings.task_queue)
    except RPCError as error:
        log.warning("where sessions of task queue %s go is not known: %s", settings.task_queue, error.message)
        return
    if concern := routing.concern(own_version(settings.worker)):
        log.warning("%s", concern)


async def work(client: Client, kit: Kit, stop: asyncio.Event, ready: asyncio.Event | None = None) -> None:
    """Works until `stop` is set, then ends in order. Raises ServiceUnavailable for a worker that can't go on: its namespace is gone, say."""
    faults: asyncio.Queue[BaseException] = asyncio.Queue()
    worker = build_worker(client, kit, on_fault=faults.put)
    running = asyncio.create_task(worker.run())
    fault, stopped = asyncio.create_task(faults.get()), asyncio.create_task(stop.wait())
    try:
        await tell_routing(client, kit.settings)
        if ready:
            ready.set()
        await asyncio.wait({running, fault, stopped}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopped.cancel()
        if fault.done():
            # The SDK's core does not always come to an end then: a process that waited for it would be there and do nothing.
            await asyncio.wait({running}, timeout=kit.settings.worker_shutdown_seconds + ENDING_SECONDS)
        else:
            fault.cancel()
            await worker.shutdown()
            await asyncio.wait({running})
    error = running.exception() if running.done() else fault.result()
    if error is not None and not stop.is_set():
        raise ServiceUnavailable("temporal", f"the worker can't go on: {words_of_core(error)}") from error


async def run(settings: Settings, stop: asyncio.Event, *, address: str | None = None, ready: asyncio.Event | None = None) -> None:
    """Runs a worker until `stop` is set. `address` is Temporal's, if its own configuration does not say it.

    Raises SetupError, and ServiceUnavailable for a worker that can't go on.
    """
    await ensure_usable(settings.database)
    database = await Database.open(settings.database)
    storage = Storage(settings, database)
    try:
        client = await connect(settings, storage, address, for_api=False, runtime=measured(settings.metrics.worker_address))
        async with open_kit(settings, database, storage) as kit:
            kit.indexed = await registered(client)
            async with retaining_events(settings, database, kit.locks):
                await work(client, kit, stop, ready)
    finally:
        await storage.close()
        await database.close()
