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


class Pulse:
    """Whether Temporal answers and a worker asks for the work of a task queue: one look for all who want to know it at the same time, so
    that a burst of requests, which makes both slow, doesn't ask as often as it is large.
    """

    def __init__(self, client: Client, task_queue: str, seconds: float) -> None:
        """`seconds`: how long a look may take."""
        self._client = client
        self._task_queue = task_queue
        self._seconds = seconds
        self._look: asyncio.Task[bool] | None = None

    async def beats(self) -> bool:
        """The answer of the look that is under way, or of a new one."""
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._taken(), name="pulse")
        return await asyncio.shield(self._look)

    async def _taken(self) -> bool:
        try:
            return bool((await routing_within(self._client, self._task_queue, self._seconds)).polled)
        except ServiceUnavailable:
            return False
