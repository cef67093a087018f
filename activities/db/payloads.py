"""Temporal's external storage: payloads that are too large for a workflow's history, and where in Postgres they are kept."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID, uuid4

from temporalio.api.common.v1 import Payload
from temporalio.api.sdk.v1.external_storage_pb2 import ExternalStorageReference
from temporalio.converter import (
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from activities.db.pool import Database
from activities.db.queries import load_queries
from workflows.contracts.errors import OutlastError, ServiceUnavailable

sql = load_queries()

REFERENCE = ExternalStorageReference.DESCRIPTOR.full_name.encode()
"""The message type of what a history has in a payload's place."""


class PayloadGone(OutlastError):
    """A history refers to a payload that isn't stored (any more): its session was erased."""


class PayloadElsewhere(ServiceUnavailable):
    """A history refers to a payload in a place that this process isn't told of. Nothing is lost: once it is, the payload can be read."""

    def __init__(self, message: str) -> None:
        super().__init__("payloads", message)


@dataclass(frozen=True)
class Stored:
    """A payload that is stored: its key, which no other one ever has, and since when."""

    key: str
    at: datetime

    @property
    def name(self) -> str:
        """What a history that refers to it has in plain text."""
        return name_of(self.key)


class PayloadStore(Protocol):
    """A place for payloads, as collections and erasures see it. All raise ServiceUnavailable where it is not there."""

    @property
    def driver(self) -> str:
        """Under which histories refer to it."""

    async def workflows(self, before: datetime) -> list[str]:
        """The workflows that have payloads from before a time."""

    async def of_workflow(self, workflow_id: str) -> list[Stored]:
        """All payloads of a workflow id."""

    async def remove(self, keys: Collection[str], erasure_id: str | None = None) -> int:
        """Removes payloads, counts each once for the erasure that they go with (none: they were left over), and answers how many."""


class PostgresDriver(StorageDriver):
    """Keeps payloads in table `payloads`, under the id of the workflow that they belong to, which is how an erasure finds them.

    What it is given is encrypted already if a codec is set. A key is never used twice, so two lives of one session id share nothing.
    Raises ServiceUnavailable while Postgres is lost; Temporal's retries then store or load again.
    """

    NAME = "postgres"

    def __init__(self, database: Database, *, only: str = "") -> None:
        """`only`: how the ids of those workflows begin whose payloads are loaded; others' count as gone."""
        self._database = database
        self._only = only

    def name(self) -> str:
        """Under which histories refer to this driver."""
        return self.NAME

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


class PostgresPayloads:
    """What PostgresDriver stored (a PayloadStore)."""

    driver = PostgresDriver.NAME

    def __init__(self, database: Database) -> None:
        self._database = database

    async def workflows(self, before: datetime) -> list[str]:
        """The workflows that have payloads from before a time."""
        async with self._database.connection() as connection:
            return [row["workflow_id"] async for row in sql.workflows_with_payloads(connection, before=before)]

    async def of_workflow(self, workflow_id: str) -> list[Stored]:
        """All payloads of a workflow id."""
        async with self._database.connection() as connection:
            rows = sql.payloads_of_workflow(connection, workflow_id=workflow_id)
            return [Stored(str(row["key"]), row["created_at"]) async for row in rows]

    async def remove(self, keys: Collection[str], erasure_id: str | None = None) -> int:
        """Removes payloads in the transaction that counts them."""
        async with self._database.connection() as connection:
            removed: int = await sql.delete_payloads(connection, keys=[UUID(key) for key in keys], erasure_id=erasure_id)
        return removed


def name_of(key: str) -> str:
    """The part of a payload's key that is its alone: a uuid, or a digest at the end of a path."""
    return key.rpartition("/")[2]


def is_reference(payload: Payload) -> bool:
    """Whether a payload stands for one in external storage."""
    return payload.metadata.get("messageType") == REFERENCE


def _workflow_of(context: StorageDriverStoreContext) -> str:
    """The workflow that a payload belongs to. An activity that no workflow started has none, and there are no such here."""
    target = context.target
    return (target.id if isinstance(target, StorageDriverWorkflowInfo) else None) or ""


__all__ = ["PayloadElsewhere", "PayloadGone", "PayloadStore", "PostgresDriver", "PostgresPayloads", "Stored", "is_reference", "name_of"]
