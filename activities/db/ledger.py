"""What model requests of a principal have used, from the ledger that outlives sessions."""

from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import asyncpg

from activities.db.queries import load_queries
from workflows.model.turn import Usage

Conn: TypeAlias = "asyncpg.Connection[Any] | asyncpg.pool.PoolConnectionProxy[Any]"
sql = load_queries()


def day_of(at: datetime) -> datetime:
    """When the day (UTC) began that `at` is in."""
    return at.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def seconds_left(at: datetime) -> int:
    """Whole seconds from `at` until its day (UTC) is over, at least 1."""
    return max(1, int((day_of(at) + timedelta(days=1) - at).total_seconds()) + 1)


async def used_today(conn: Conn, tenant: str, principal: str | None, at: datetime) -> Usage:
    """What the sessions that a principal owns have used on the day (UTC) of `at`."""
    row = await sql.usage_since(conn, tenant=tenant, principal=principal, since=day_of(at))
    return Usage(
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        requests=row["requests"],
        cost_usd=None if row["cost_usd"] is None else format(row["cost_usd"], "f"),
    )
