"""What the api asks of Temporal itself."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from workflows.contracts.errors import ServiceUnavailable
from workflows.contracts.naming import erasure_workflow_id
from workflows.contracts.sessions import Erased

POLLED_WITHIN = timedelta(seconds=90)
"""Idle workers ask again every minute; one that has not for this long is gone, though Temporal lists it for five."""

ERASURE_SECONDS = 5.0
"""How long Temporal may take to say how far an erasure is."""


async def worker_seen(client: Client, task_queue: str, seconds: float) -> bool:
    """Whether a worker asks for session work on `task_queue`. Raises ServiceUnavailable if Temporal doesn't say within `seconds`."""
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    try:
        async with asyncio.timeout(seconds):
            queue = await client.workflow_service.describe_task_queue(request)
    except TimeoutError as error:
        raise ServiceUnavailable("temporal", f"Temporal did not answer within {seconds:g} s") from error
    except (RPCError, RuntimeError) as error:
        raise ServiceUnavailable("temporal", f"Temporal can't be reached: {error}") from error
    since = datetime.now(UTC) - POLLED_WITHIN
    return any(poller.last_access_time.ToDatetime(UTC) >= since for poller in queue.pollers)


@dataclass(frozen=True, slots=True)
class FoundErasure:
    """An erasure: whose session it was, and what was removed once it is verified."""

    tenant: str
    session_id: str
    owner: str
    status: Literal["running", "done", "failed"]
    erased: Erased | None
    at: datetime | None


async def find_erasure(client: Client, session_uid: str) -> FoundErasure | None:
    """The erasure of a session, None if there is none (any more). Raises ServiceUnavailable if Temporal doesn't say."""
    handle = client.get_workflow_handle(erasure_workflow_id(session_uid), result_type=Erased)
    try:
        async with asyncio.timeout(ERASURE_SECONDS):
            run = await handle.describe()
            memo = await run.memo()
            done = run.status == WorkflowExecutionStatus.COMPLETED
            erased = await handle.result() if done else None
    except RPCError as error:
        if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            return None
        raise ServiceUnavailable("temporal", f"Temporal can't be reached: {error}") from error
    except (TimeoutError, RuntimeError) as error:
        raise ServiceUnavailable("temporal", "Temporal does not say how far the erasure is") from error
    running = run.status == WorkflowExecutionStatus.RUNNING
    return FoundErasure(
        tenant=memo.get("tenant", ""),
        session_id=memo.get("session_id", ""),
        owner=memo.get("owner", ""),
        status="done" if done else "running" if running else "failed",
        erased=erased,
        at=run.close_time if done else None,
    )
