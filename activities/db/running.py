"""Turns that run now, for operators."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from activities.db.pool import Database
from activities.db.reads import reading, sql


@dataclass(frozen=True, slots=True)
class RunningTurn:
    """A turn that the rows show as running."""

    tenant: str
    session_id: str
    turn_id: str
    number: int
    started_at: datetime


async def running_turns(database: Database, most: int) -> Sequence[RunningTurn]:
    """The oldest ones of all tenants, `most` at most. Raises ServiceUnavailable where Postgres is not there."""
    async with reading(database) as conn:
        return [RunningTurn(**row) async for row in sql.running_turns(conn, most=most)]
