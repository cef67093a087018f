"""Work that must not stop with the attempt that started it: a step or a tool of this worker, found again by the next attempt."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from temporalio import activity
from temporalio.exceptions import ApplicationError

from activities.db.locks import StepLocks
from workflows.contracts.errors import OutlastError, Refusal, ServiceUnavailable
from workflows.contracts.policies import DATABASE_RETRY_SECONDS

Result = TypeVar("Result")


class Stoppable(Protocol):
    """Work that can be asked to end early."""

    def stop(self) -> None:
        """Asks it."""


class Running:
    """One worker's running steps and tools. A second attempt joins the first one's work instead of repeating it."""

    def __init__(self, locks: StepLocks) -> None:
        self._locks = locks
        self._work: dict[str, tuple[Stoppable, asyncio.Task[Any]]] = {}

    async def once(self, key: str, work: Stoppable, run: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        """The result of `run`, which holds the lock of `key` while it works.

        A cancellation that the workflow asked for stops the work and waits for its end; a worker that shuts down gives it up, for
        the next attempt; a server that lost track of the attempt changes nothing.
        """
        if key not in self._work:
            task = asyncio.create_task(self._locked(key, run))
            self._work[key] = (work, task)
            task.add_done_callback(lambda _: self._work.pop(key, None))
        work, task = self._work[key]
        while True:
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                if task.cancelled():
                    raise
                details = activity.cancellation_details()
                if details and details.cancel_requested:
                    work.stop()
                elif details and (details.worker_shutdown or details.paused or details.reset):
                    task.cancel()
                    raise

    async def _locked(self, key: str, run: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        while True:
            begun = False
            try:
                async with self._locks.hold(key):
                    begun = True
                    return await run()
            except ServiceUnavailable:
                if begun:
                    raise
                await asyncio.sleep(DATABASE_RETRY_SECONDS)


async def guarded(work: Awaitable[Result]) -> Result:
    """Nothing unexpected is retried for ever: it fails the activity for good, and the workflow ends the turn with a reason (L12)."""
    try:
        return await work
    except ApplicationError:
        raise
    except Refusal as refusal:
        raise refusal.as_failure() from refusal
    except ServiceUnavailable as error:
        raise ApplicationError(str(error), type=type(error).__name__) from error
    except OutlastError as error:
        raise ApplicationError(str(error), type=type(error).__name__, non_retryable=True) from error
    except Exception as error:
        activity.logger.exception("an activity failed unexpectedly")
        raise ApplicationError(f"unexpected {type(error).__name__}", type="Internal", non_retryable=True) from error
