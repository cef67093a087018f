"""What sessions did, cost and took: counted from rows when it is asked for, so it is the same on every process and after a restart (S73)."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from uuid import UUID

import asyncpg

from activities.db.pool import Database
from activities.db.reads import reading, sql


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Whole milliseconds; None if nothing was measured yet."""

    p50: int | None
    p95: int | None


@dataclass(frozen=True, slots=True)
class SessionMetrics:
    """`steps` are finished model requests, `cost_usd` is None if no model had a known price, `errors` count turns by how their last attempt
    failed, `host_wait_ms` is how long hosts were waited for.
    """

    turns: int
    steps: int
    input_tokens: int
    output_tokens: int
    cost_usd: Decimal | None
    tool_calls: int
    errors: dict[str, int]
    first_text_ms: Percentiles
    turn_ms: Percentiles
    host_wait_ms: int


class Metrics:
    """Counts. Raises ServiceUnavailable as all reads do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, session_uids: Sequence[UUID]) -> list[SessionMetrics]:
        """The metrics of some sessions, in their order."""
        async with reading(self._database) as conn:
            found = {row["session_uid"]: row async for row in sql.session_metrics(conn, session_uids=session_uids)}
        return [_metrics(found[uid]) for uid in session_uids]


def _metrics(row: asyncpg.Record) -> SessionMetrics:
    return SessionMetrics(
        turns=row["turns"],
        steps=row["steps"],
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        cost_usd=row["cost_usd"],
        tool_calls=row["tool_calls"],
        errors=json.loads(row["errors"]),
        first_text_ms=Percentiles(row["first_text_p50"], row["first_text_p95"]),
        turn_ms=Percentiles(row["turn_p50"], row["turn_p95"]),
        host_wait_ms=row["host_wait_ms"],
    )
