"""Heartbeats: their clock starts before any other work, so that a slow start is not taken for a dead worker (L22)."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from temporalio import activity

from workflows.contracts.policies import BEAT_EVERY_SECONDS


@asynccontextmanager
async def beating() -> AsyncIterator[None]:
    """Heartbeats until the block ends."""
    beats = asyncio.create_task(_beat())
    try:
        yield
    finally:
        beats.cancel()


async def _beat() -> None:
    # The first one is due well within the timeout. Sent at once it would cost every short activity a call of the server.
    while True:
        await asyncio.sleep(BEAT_EVERY_SECONDS)
        activity.heartbeat()
