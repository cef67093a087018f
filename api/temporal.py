"""What the api asks of Temporal itself."""

import asyncio

from temporalio.client import Client
from temporalio.service import RPCError

from activities.db.routing import Routing, routing_of
from workflows.contracts.errors import ServiceUnavailable


async def routing_within(client: Client, task_queue: str, seconds: float) -> Routing:
    """Where session work of `task_queue` goes and which workers ask for it. Raises ServiceUnavailable if Temporal doesn't say within `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await routing_of(client, task_queue)
    except TimeoutError as error:
        raise ServiceUnavailable("temporal", f"Temporal did not answer within {seconds:g} s") from error
    except (RPCError, RuntimeError) as error:
        raise ServiceUnavailable("temporal", f"Temporal can't be reached: {error}") from error
