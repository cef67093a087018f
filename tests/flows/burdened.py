"""Workflows that a machine has no time for, or that won't leave it."""

import asyncio
import contextlib
import time

from temporalio import workflow


@workflow.defn
class Slow:
    """Its first workflow task takes seconds, in which nobody can interrupt it, and leaves others waiting for their turn."""

    @workflow.run
    async def run(self) -> str:
        others = [asyncio.create_task(self._wait()) for _ in range(3)]
        if workflow.info().get_current_history_length() < 5:  # another try comes behind the failure of this one
            with workflow.unsafe.sandbox_unrestricted():
                time.sleep(4)
        for other in others:
            other.cancel()
        return "done"

    async def _wait(self) -> None:
        await workflow.wait_condition(lambda: False)


@workflow.defn
class Stubborn:
    """Waits on, whatever is cancelled."""

    @workflow.run
    async def run(self) -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
