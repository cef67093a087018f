"""Is it up, and may it be sent work: each part is asked with a limit, so that one that hangs doesn't hang the answer."""

import asyncio
from dataclasses import dataclass
from typing import Literal

from activities.db.status import schema_status
from api.deps import Api
from api.temporal import routing_within
from workflows.contracts.errors import ServiceUnavailable

PROBE_SECONDS = 4.0
"""All parts are asked side by side; the answer is out within 5 s, also where one of them hangs (R16)."""

Part = Literal["postgres", "temporal", "worker"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What one part said. `error` is one line, None if the part is well."""

    part: Part
    error: str | None = None


async def examine(api: Api) -> list[Finding]:
    """Looks at Postgres (reachable, schema at head), Temporal (reachable) and workers (one that new sessions go to asks for work)."""
    postgres, temporal = await asyncio.gather(_postgres(api), _temporal(api))
    return [postgres, *temporal]


async def _postgres(api: Api) -> Finding:
    try:
        async with asyncio.timeout(PROBE_SECONDS):
            status = await schema_status(api.settings.database)
    except TimeoutError:
        return Finding("postgres", "unreachable: it does not answer")
    return Finding("postgres", None if status.cause is None else f"{status.cause}: {status.error}")


async def _temporal(api: Api) -> list[Finding]:
    try:
        routing = await routing_within(api.temporal, api.settings.task_queue, PROBE_SECONDS)
    except ServiceUnavailable as error:
        return [Finding("temporal", f"unreachable: {error}"), Finding("worker", "unknown while Temporal is not there")]
    return [Finding("temporal"), Finding("worker", routing.shortfall())]
