"""`outlast stuck`: sessions whose work doesn't get on, a line each.

No list filter of Temporal says how often an activity has been tried, or that a session's own task waits. So the sessions that can have
pending work are gathered (cli/suspects.py), and each of them is asked.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.api.history.v1 import HistoryEvent
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowHandle
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.db.encryption import PayloadUnreadable
from cli.endpoints import find_endpoints, temporal_client, usable_database
from cli.options import counted, note, say
from cli.suspects import gathered
from settings import Settings
from workflows.contracts.errors import STILL_THERE, ServiceUnavailable

AT_ONCE = 8

ERASURE_PATIENCE = timedelta(minutes=10)
"""An erasure looks again and again until Temporal has removed the runs in the background, and until nothing is on its way any more: so long it
may take.
"""


@dataclass(frozen=True, slots=True)
class Limits:
    """From how many attempts on, and from how long a wait for a worker on, work counts as stuck."""

    attempts: int
    waiting: timedelta


async def run_stuck(settings: Settings, limits: Limits) -> bool:
    """Prints what is stuck. True if nothing is; False also where a task waits that is none of those looked at. Raises OutlastError."""
    found = find_endpoints(settings)
    async with usable_database(found) as database, temporal_client(found, database) as client:
        suspects = await gathered(client, database, settings.task_queue, limits.waiting)
        for remark in suspects.remarks:
            note(remark)
        turnstile = asyncio.Semaphore(AT_ONCE)

        async def ask(workflow_id: str) -> list[str]:
            async with turnstile:
                return [line async for line in _lines(client, workflow_id, limits)]

        asked = [*suspects.busy, *suspects.rest]
        lines = [line for found in await asyncio.gather(*(ask(workflow_id) for workflow_id in asked)) for line in found]
    for line in lines:
        say(line)
    resting = f" and {counted(len(suspects.rest), 'session')} at rest" if suspects.rest else ""
    say(f"{len(lines)} stuck, {counted(len(suspects.busy), 'workflow')} with work{resting} looked at")
    hidden = not lines and suspects.cut and suspects.oldest > limits.waiting
    if hidden:
        note(
            f"a task of queue {settings.task_queue} waits for a worker for {suspects.oldest.total_seconds():.0f} s, of a session not looked at"
        )
    return not lines and not hidden


async def _lines(client: Client, workflow_id: str, limits: Limits) -> AsyncIterator[str]:
    handle = client.get_workflow_handle(workflow_id)
    try:
        described = await handle.describe()
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return
        raise ServiceUnavailable("temporal", f"Temporal does not describe {workflow_id}: {error.message}") from error
    if (task := _task(described, limits)) is not None:
        yield f"{workflow_id}  {task}"
    activities = [(pending, await _activity(client, pending, limits)) for pending in described.raw_description.pending_activities]
    troubled = [(pending, trouble) for pending, trouble in activities if trouble is not None]
    begun = await _begun(client, handle, {pending.activity_id for pending, _ in troubled}) if troubled else {}
    for pending, trouble in troubled:
        summary, since = begun.get(pending.activity_id, ("", None))
        looks_again = pending.attempt >= limits.attempts and _found_something(pending)
        if not looks_again or since is None or _age(since) >= ERASURE_PATIENCE:
            said = [pending.activity_type.name, *([f"({summary})"] if summary else []), *([f"since {_second(since)}"] if since else [])]
            yield f"{workflow_id}  {' '.join(said)}  {trouble}"


def _task(described: WorkflowExecutionDescription, limits: Limits) -> str | None:
    """The workflow's own task, which fails where code and history don't fit, and waits where no worker is."""
    raw = described.raw_description
    if not raw.HasField("pending_workflow_task"):
        return None
    task = raw.pending_workflow_task
    since = task.original_scheduled_time.ToDatetime(UTC)
    if task.attempt >= limits.attempts:
        return f"workflow task  attempt {task.attempt}, since {_second(since)}; the worker's log says why"
    if not task.HasField("started_time") and _age(since) > limits.waiting:
        return f"workflow task  waits for a worker since {_second(since)}"
    return None


async def _activity(client: Client, pending: PendingActivityInfo, limits: Limits) -> str | None:
    if pending.attempt >= limits.attempts:
        again = pending.next_attempt_schedule_time.ToDatetime(UTC) if pending.HasField("next_attempt_schedule_time") else None
        return f"attempt {pending.attempt}, {await _failure(client, pending)}{f', next at {_second(again)}' if again else ''}"
    if pending.paused:
        return "paused"
    started = pending.state == PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    return None if started or _age(pending.scheduled_time.ToDatetime(UTC)) <= limits.waiting else "waits for a worker"


def _found_something(pending: PendingActivityInfo) -> bool:
    """Whether the last try was an erasure's look that found something left. A failure's type is never encrypted."""
    return pending.last_failure.application_failure_info.type == STILL_THERE


async def _failure(client: Client, pending: PendingActivityInfo) -> str:
    """How the last attempt ended, in one line. Its type can be read without a key."""
    if not pending.HasField("last_failure"):
        return "no failure told"
    failure = pending.last_failure
    try:
        if failure.HasField("encoded_attributes"):  # the SDK takes no offence at what it can't read
            await client.data_converter.decode([failure.encoded_attributes])
        error = await client.data_converter.decode_failure(failure)
    except PayloadUnreadable as unreadable:
        return f"{failure.application_failure_info.type or 'failure'}: {unreadable}"
    words = " ".join((error.message if isinstance(error, ApplicationError) else str(error)).split())
    kind = error.type if isinstance(error, ApplicationError) and error.type else type(error).__name__
    return f"{kind}: {words}"


async def _begun(client: Client, handle: "WorkflowHandle[object, object]", activity_ids: set[str]) -> dict[str, tuple[str, datetime]]:
    """Of each activity the step's number or the tool's name, and since when it is wanted. Only the history has both."""
    found: dict[str, tuple[str, datetime]] = {}
    async for event in handle.fetch_history_events():
        activity_id = event.activity_task_scheduled_event_attributes.activity_id
        if activity_id in activity_ids:
            found[activity_id] = await _summary(client, event), event.event_time.ToDatetime(UTC)
            if len(found) == len(activity_ids):
                break
    return found


async def _summary(client: Client, event: HistoryEvent) -> str:
    """Empty without the key to it."""
    with suppress(PayloadUnreadable):
        (summary,) = await client.data_converter.decode([event.user_metadata.summary], [str])
        return str(summary)
    return ""


def _age(since: datetime) -> timedelta:
    return datetime.now(UTC) - since


def _second(at: datetime) -> str:
    return at.isoformat(" ", "seconds")
