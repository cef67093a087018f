"""`outlast doctor`: one line a check."""

import asyncio
import platform
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from urllib.parse import urlsplit

from temporalio.api.common.v1 import Payload
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.service import RPCError

from activities.db.bucket import Bucket
from activities.db.encryption import AesGcmCodec, PayloadUnreadable, codec_of, locked
from activities.db.migrate import schema_status
from activities.db.routing import left_behind, named, own_version, remainders, routing_of
from activities.llm.models import Models
from activities.search_attributes import missing
from api.signing import KeyRing
from cli.endpoints import Endpoints, find_endpoints, temporal_client
from cli.environment import load_settings
from cli.secrets import with_secrets
from cli.serving import Say, is_loopback
from profiles.loading import default_profile, load_profiles
from settings import Settings
from workflows.contracts.errors import ServiceUnavailable, SetupError, words_of
from workflows.contracts.naming import SESSION_WORKFLOW

CHECK_SECONDS = 5.0
READ = 3
"""Open sessions whose payloads are tried with the keys."""

PYTHON = ((3, 11), (3, 15))
"""The first version that Outlast runs on, and the first that it doesn't (pyproject.toml)."""

Verdict = Literal["ok", "warn", "FAIL"]


@dataclass(frozen=True)
class Finding:
    """What a check found, in one line."""

    verdict: Verdict
    text: str


async def run_doctor(say: Say, **overrides: Any) -> bool:
    """Prints a line per check. False if one failed. Never raises: what keeps a check from running is its finding."""
    failed = False

    def tell(name: str, finding: Finding) -> None:
        nonlocal failed
        failed = failed or finding.verdict == "FAIL"
        say(f"{finding.verdict:<4}  {name}: {' '.join(finding.text.split())}")

    tell("python", check_python(sys.version_info[:2]))
    settings = found = None
    try:
        settings = load_settings(**overrides)
        tell("settings", Finding("ok", f"data folder {settings.data_dir.absolute()}, profile {default_profile(settings)}"))
        found = find_endpoints(settings)
    except SetupError as error:
        tell("settings" if settings is None else "endpoints", Finding("FAIL", str(error)))
    if settings is not None:
        tell("access", check_access(settings))
        tell("models", await bounded(partial(check_models, settings)))
    if found is not None:
        tell("temporal", temporal := await bounded(partial(check_temporal, found)))
        if temporal.verdict != "FAIL":
            tell("workers", await bounded(partial(check_workers, found)))
        tell("postgres", await bounded(partial(check_postgres, found)))
        tell("signing keys", check_signing(found))
        tell("payload keys", await bounded(partial(check_codec, found, try_them=temporal.verdict != "FAIL")))
    if settings is not None:
        tell("payloads", await bounded(partial(check_payloads, settings)))
    return not failed


async def bounded(check: Callable[[], Awaitable[Finding]]) -> Finding:
    """The finding of a check, or that it took too long or broke."""
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            return await check()
    except TimeoutError:
        return Finding("FAIL", f"no answer within {CHECK_SECONDS:g} s")
    except Exception as error:
        return Finding("FAIL", words_of(error))


def check_python(version: tuple[int, ...]) -> Finding:
    """Whether this Python is one that Outlast runs on."""
    first, end = PYTHON
    text = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    if first <= version < end:
        return Finding("ok", text)
    return Finding("FAIL", f"{text}: Outlast needs {first[0]}.{first[1]} to {end[0]}.{end[1] - 1}")


def check_signing(found: Endpoints) -> Finding:
    """Whether an API would find its signing keys. A worker needs none."""
    try:
        return Finding("ok", f"{', '.join(KeyRing.of(with_secrets(found).settings.signing.keys).ids)}; the first one signs")
    except SetupError as error:
        return Finding("FAIL" if found.settings.signing.keys else "warn", str(error))


async def check_codec(found: Endpoints, *, try_them: bool) -> Finding:
    """Whether what Temporal keeps is encrypted, and with which keys it can be read; `try_them`: on what the newest open sessions began with."""
    codec = codec_of(with_secrets(found).settings.codec.keys)
    if codec is None:
        keys = Finding("warn", "none: payloads in Temporal's history are not encrypted")
    else:
        keys = Finding("ok", f"{', '.join(codec.ids)}; the first one encrypts")
    return await _tried(found, codec, keys) if try_them else keys


async def _tried(found: Endpoints, codec: AesGcmCodec | None, keys: Finding) -> Finding:
    """`keys`, unless they don't open something."""
    query = f"TaskQueue = '{found.settings.task_queue}' AND ExecutionStatus = 'Running' AND WorkflowType = '{SESSION_WORKFLOW}'"
    async with temporal_client(found) as client:
        try:
            async for run in client.list_workflows(query, limit=READ):
                history = client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history_events(page_size=1)
                payloads = (await anext(history)).workflow_execution_started_event_attributes.input.payloads
                if (problem := await _unread(codec, payloads)) is not None:
                    return Finding("FAIL", f"{keys.text}, but {run.id} can't be read: {problem}")
        except RPCError as error:
            return Finding("warn", f"{keys.text}; whether they open the sessions is not known: {error.message}")
    return keys


async def _unread(codec: AesGcmCodec | None, payloads: Sequence[Payload]) -> str | None:
    """Why payloads can't be read, in one line; None if they can."""
    if codec is None:
        problem = locked(payloads)
        return None if problem is None else str(problem)
    try:
        await codec.decode(payloads)
    except PayloadUnreadable as error:
        return str(error)
    return None


def check_access(settings: Settings) -> Finding:
    """What the access mode relies on. Settings that are incomplete never get here."""
    access, host = settings.access, settings.api.host
    open_to_all = access.mode in ("local", "header") and not is_loopback(host)
    text = f"mode {access.mode}" + (f", origins {', '.join(access.origins)}" if access.origins else "")
    if open_to_all and access.by_address and not access.trust_network:
        return Finding("FAIL", f"{text}: OUTLAST_API__HOST={host} is not a loopback address, and everyone would be admin")
    if open_to_all:
        return Finding("warn", f"{text} on {host}: whoever gets past what stands before the API can be anybody")
    if access.mode == "jwt" and urlsplit(access.jwks_url).scheme == "http" and not is_loopback(urlsplit(access.jwks_url).hostname or ""):
        return Finding("warn", f"{text}: keys that come over http can be replaced on their way (OUTLAST_ACCESS__JWKS_URL)")
    return Finding("ok", text)


async def check_models(settings: Settings) -> Finding:
    """Whether the configured models and those of profiles can be built: known names, credentials, packages. Sends nothing."""
    models = Models(settings)
    try:
        problems = await asyncio.to_thread(lambda: models.warm(profile.model for profile in load_profiles(settings).values()))
    finally:
        await models.close()
    if problems:
        return Finding("FAIL", "; ".join(problems.values()))
    return Finding("ok", ", ".join((settings.model, *settings.model_fallbacks)))


async def check_temporal(found: Endpoints) -> Finding:
    """Whether Temporal answers, has the namespace, and knows the search attributes there."""
    async with temporal_client(found) as client:
        where = f"{client.service_client.config.target_host}, namespace {client.namespace}"
        try:
            await client.workflow_service.describe_namespace(DescribeNamespaceRequest(namespace=client.namespace))
            absent = await missing(client)
        except RPCError as error:
            return Finding("FAIL", f"{where}: {error.message}")
    if absent:
        return Finding("warn", f"{where}: search attributes {', '.join(absent)} are missing, run `outlast migrate`")
    return Finding("ok", f"{where}, search attributes registered")


async def check_workers(found: Endpoints) -> Finding:
    """Whether workers ask for the work of new sessions, whether a worker with these settings would be one of them, and whether open runs
    of earlier versions still have theirs.
    """
    queue, own = found.settings.task_queue, own_version(found.settings.worker)
    async with temporal_client(found) as client:
        try:
            routing = await routing_of(client, queue)
            version = routing.current or own
            earlier = await left_behind(client, routing, version.deployment_name) if version else {}
        except RPCError as error:
            return Finding("warn", f"task queue {queue}: {error.message}")
    served, alone = remainders(earlier, routing.polled)
    concerns = (routing.shortfall(), routing.concern(own), alone)
    if any(concerns) or not routing.ramp_served:
        return Finding("warn", "; ".join(filter(None, dict.fromkeys((*concerns, routing.ramp())))))
    asking = f"{named(routing.current)} ask for work on task queue {queue}"
    return Finding("ok", "; ".join(filter(None, (asking, routing.ramp(), served))))


async def check_postgres(found: Endpoints) -> Finding:
    """Whether Postgres answers, its schema is at this release's head, and the role that we are holds what api and worker need."""
    status = await schema_status(found.settings.database)
    if status.state == "ready":
        rights = "owns it" if status.role == status.owner else "holds what api and worker need"
        return Finding("ok", f"schema at {status.current}, role {status.role} {rights}")
    return Finding("FAIL", f"{status.cause}: {status.error}")


async def check_payloads(settings: Settings) -> Finding:
    """Where large payloads are kept, and whether an object can be written to the bucket, if there is one, read and removed."""
    if not settings.payloads.s3_bucket:
        return Finding("ok", "large ones are kept in Postgres")
    bucket = Bucket(settings.payloads)
    try:
        await bucket.probe()
        versions = await bucket.keeps_versions()
    except ServiceUnavailable as error:
        return Finding("FAIL", f"{bucket.where}: {error}")
    finally:
        await bucket.close()
    text = f"{bucket.where}, written, read and removed; new ones go to {settings.payloads.driver}"
    if versions:
        return Finding("warn", f"{text}; the bucket keeps versions, so that erasures have to remove each, and nobody else's removal is one")
    return Finding("ok", text)
