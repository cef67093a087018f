"""Payloads in external storage that no history refers to any more."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from temporalio.client import Client

from activities.db.pool import Database
from activities.db.session_tx import sql
from activities.runs import Runs
from workflows.contracts.errors import OutlastError
from workflows.contracts.policies import IN_FLIGHT

PAGE = 500
"""Payloads removed at once."""


class StillInFlight(OutlastError):
    """Payloads are so young that a request may carry them that no history shows yet."""


class Leftovers:
    """Looks for them under one workflow id. Raises ServiceUnavailable and RPCError where Postgres or Temporal is not there."""

    def __init__(self, database: Database, client: Client, workflow_id: str) -> None:
        self._database = database
        self._runs = Runs(client, workflow_id)
        self._workflow_id = workflow_id

    async def of_runs(self, run_ids: Collection[str], now: datetime) -> list[UUID]:
        """Those that some runs refer to, which are no leftovers yet: their runs are about to go."""
        return list(await self._runs.referred_to(run_ids, await self._stored(now)))

    async def of_ended(self, ended: datetime, now: datetime) -> list[UUID]:
        """Those of a session that has ended and whose runs are gone.

        Is the id in use again, they are those from before the end to which the other runs don't refer. Raises StillInFlight if one
        of these was stored shortly before the end, and could be on its way into a run that has begun since.
        """
        others = await self._runs.all()
        found = await self._stored(ended if others else now)
        referred = await self._runs.referred_to(others, found)
        left = {key: at for key, at in found.items() if key not in referred}
        if any(others.values()) and now < ended + IN_FLIGHT and any(at > ended - IN_FLIGHT for at in left.values()):
            raise StillInFlight("payloads of the session's last moments may be on their way to another one under its id")
        return list(left)

    async def older_than(self, before: datetime) -> list[UUID]:
        """Those that were stored before a time, whatever became of their session."""
        found = await self._stored(before)
        referred = await self._runs.referred_to(await self._runs.all(), found) if found else set()
        return [key for key in found if key not in referred]

    async def remove(self, keys: Collection[UUID], erasure_id: str | None = None) -> int:
        """Removes payloads, each page of them in the transaction that counts it for an erasure. Answers how many there were."""
        removed, rest = 0, list(keys)
        while rest:
            page, rest = rest[:PAGE], rest[PAGE:]
            async with self._database.connection() as conn:
                removed += await sql.delete_payloads(conn, keys=page, erasure_id=erasure_id)
        return removed

    async def _stored(self, before: datetime) -> dict[UUID, datetime]:
        async with self._database.connection() as conn:
            rows = sql.payloads_of_workflow(conn, workflow_id=self._workflow_id, before=before)
            return {row["key"]: row["created_at"] async for row in rows}
