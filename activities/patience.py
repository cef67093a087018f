"""Waiting for Postgres: a turn's write happens when the database is back, however long that takes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from workflows.contracts.errors import ServiceUnavailable
from workflows.contracts.policies import DATABASE_RETRY_SECONDS

Result = TypeVar("Result")


async def patiently(write: Callable[[], Awaitable[Result]]) -> Result:
    """Runs `write`, which must be repeatable, until Postgres has taken it. Everything but ServiceUnavailable is raised at once."""
    while True:
        try:
            return await write()
        except ServiceUnavailable:
            await asyncio.sleep(DATABASE_RETRY_SECONDS)
