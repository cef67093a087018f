"""Payloads in external storage that no history refers to any more."""

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta

from temporalio.client import Client

from activities.db.payloads import PayloadStore, Stored
from activities.db.s3 import DRIVER as S3
from activities.db.s3 import no_bucket
from activities.runs import Runs
from workflows.contracts.errors import OutlastError
from workflows.contracts.policies import IN_FLIGHT

PAGE = 500
"""Payloads removed at once."""

CLOCKS = timedelta(seconds=5)
"""How far the clocks of two machines may be apart."""

Found = dict[PayloadStore, list[str]]
"""Payloads' keys, by the place that they are in."""

Payloads = dict[PayloadStore, list[Stored]]
"""Payloads as they are stored, likewise."""


class StillInFlight(OutlastError):
    """Payloads are so young that a request may carry them that no history shows yet."""


class Leftovers:
    """Looks for them under one workflow id, in every place. Raises ServiceUnavailable and RPCError where one of these or Temporal is not there."""

    def __init__(self, stores: Sequence[PayloadStore], client: Client, workflow_id: str) -> None:
        self._stores = stores
        self._runs = Runs(client, workflow_id)
        self._workflow_id = workflow_id

    async def of_runs(self, run_ids: Collection[str]) -> Found:
        """Those that some runs refer to, which are no leftovers yet: their runs are about to go.

        Raises PayloadElsewhere if they refer to a place that we are not told of: what is there would stay for ever.
        """
        if S3 not in {store.driver for store in self._stores} and await self._runs.refer_to_driver(run_ids, S3):
            raise no_bucket()
        return _keys(await self._picked(await self._stored(), run_ids, referred=True))

    async def of_ended(self, ended: datetime, now: datetime) -> Found:
        """Those of a session that has ended and whose runs are gone.

        Is the id in use again, they are those from before the end to which the other runs don't refer. Raises StillInFlight if one of them
        is so young that it could be on its way into a run that has begun since, or is about to begin.
        """
        others = await self._runs.all()
        stored = await self._stored(ended + CLOCKS if others else None)
        left = await self._picked(stored, others, referred=False)
        if any(one.at > now - IN_FLIGHT for payloads in left.values() for one in payloads):
            raise StillInFlight("payloads of the session's last moments may be on their way to another one under its id")
        return _keys(left)

    async def older_than(self, before: datetime) -> Found:
        """Those that were stored before a time, whatever became of their session. `before` is at least IN_FLIGHT ago."""
        stored = await self._stored(before)
        run_ids = await self._runs.all() if any(stored.values()) else ()
        return _keys(await self._picked(stored, run_ids, referred=False))

    async def remove(self, found: Found, erasure_id: str | None = None) -> int:
        """Removes payloads, page by page, and counts each for an erasure. Answers how many there were."""
        removed = 0
        for store, keys in found.items():
            for start in range(0, len(keys), PAGE):
                removed += await store.remove(keys[start : start + PAGE], erasure_id)
        return removed

    async def _stored(self, before: datetime | None = None) -> Payloads:
        """All that were stored before a time, if one is given. Taken before histories are read: what comes after may be referred to later."""
        found = {store: await store.of_workflow(self._workflow_id) for store in self._stores}
        return {store: [one for one in stored if before is None or one.at <= before] for store, stored in found.items()}

    async def _picked(self, found: Payloads, run_ids: Collection[str], *, referred: bool) -> Payloads:
        """Those to which runs refer, or those to which they don't."""
        names = await self._runs.referred_to(run_ids, {one.name for stored in found.values() for one in stored})
        return {store: [one for one in stored if (one.name in names) is referred] for store, stored in found.items()}


def _keys(found: Payloads) -> Found:
    return {store: [one.key for one in stored] for store, stored in found.items()}
