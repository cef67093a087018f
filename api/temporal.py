"""What the api asks of Temporal itself."""

import asyncio
from datetime import UTC, datetime, timedelta

from temporalio.api.enums.v1 import TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError

from workflows.contracts.errors import ServiceUnavailable

POLLED_WITHIN = timedelta(seconds=90)
"""Idle workers ask again every minute; one that has not for this long is gone, though Temporal lists it for five."""


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
