"""Temporal's external storage in Postgres: payloads that are too large for a workflow's history."""

from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID, uuid4

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from activities.db.pool import Database
from activities.db.queries import load_queries
from workflows.contracts.errors import OutlastError

sql = load_queries()


class PayloadGone(OutlastError):
    """A history refers to a payload that isn't stored (any more): its session was erased."""


class PostgresDriver(StorageDriver):
    """Keeps payloads in table `payloads`, under the id of the workflow that they belong to, which is how an erasure finds them.

    What it is given is encrypted already if a codec is set. A key is never used twice, so two lives of one session id share nothing.
    Raises ServiceUnavailable while Postgres is lost; Temporal's retries then store or load again.
    """

    def __init__(self, database: Database, *, only: str = "") -> None:
        """`only`: how the ids of those workflows begin whose payloads are loaded; others' count as gone."""
        self._database = database
        self._only = only

    def name(self) -> str:
        """Under which histories refer to this driver."""
        return "postgres"

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Stores payloads, all or none, and returns what to put into the history instead."""
        keys = [uuid4() for _ in payloads]
        async with self._database.connection() as connection:
            await sql.store_payloads(
                connection,
                keys=keys,
                workflow_id=_workflow_of(context),
                bodies=[payload.SerializeToString() for payload in payloads],
                at=datetime.now(UTC),
            )
        return [StorageDriverClaim({"key": str(key)}) for key in keys]

    async def retrieve(self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]) -> list[Payload]:
        """Loads what `store` stored, in the order of `claims`. Raises PayloadGone if one isn't there."""
        keys = [UUID(claim.claim_data["key"]) for claim in claims]
        async with self._database.connection() as connection:
            bodies = {row["key"]: row["body"] async for row in sql.load_payloads(connection, keys=keys, workflow_prefix=self._only)}
        if gone := [key for key in keys if key not in bodies]:
            raise PayloadGone(f"payload {gone[0]} is not stored any more")
        return [Payload.FromString(bodies[key]) for key in keys]


async def workflows_with_payloads(database: Database, before: datetime) -> list[str]:
    """The workflows that have payloads from before a time. Raises ServiceUnavailable where Postgres is not there."""
    async with database.connection() as connection:
        return [row["workflow_id"] async for row in sql.workflows_with_payloads(connection, before=before)]


def _workflow_of(context: StorageDriverStoreContext) -> str:
    """The workflow that a payload belongs to. An activity that no workflow started has none, and there are no such here."""
    target = context.target
    return (target.id if isinstance(target, StorageDriverWorkflowInfo) else None) or ""


__all__ = ["PayloadGone", "PostgresDriver", "workflows_with_payloads"]
