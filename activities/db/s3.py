"""Temporal's external storage in S3: the SDK's own driver, and how collections and erasures find what it stored."""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from urllib.parse import quote, unquote
from uuid import uuid4

from temporalio.api.common.v1 import Payload
from temporalio.contrib.aws.s3driver import S3StorageDriver
from temporalio.converter import (
    StorageDriver,
    StorageDriverActivityInfo,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from activities.db.bucket import Bucket
from activities.db.payloads import PayloadElsewhere, PayloadGone, Stored, name_of
from activities.db.pool import Database
from activities.db.queries import load_queries
from workflows.contracts.errors import OutlastError

sql = load_queries()

DRIVER = "aws.s3driver"
"""The SDK's name for its driver, under which other clients read what histories refer to."""

MOST_BYTES = 1 << 30
"""As much as a row in Postgres takes."""

MOST_KEY_BYTES = 1024
"""S3's limit. The driver leaves the workflow out of a key that would be longer, and nobody would find the object again."""

ALONE = "outlast-object"
"""Metadata that makes a payload unlike every other one."""

KEY = re.compile(r"v0/ns/([^/]+)/wt/[^/]+/wi/([^/]+)/ri/[^/]+/d/sha256/[0-9a-f]{64}")
"""The layout of the SDK's driver: namespace, workflow type, workflow id, run id (`null` where the writer didn't know), digest."""


class S3Driver(S3StorageDriver):
    """Keeps payloads as objects, under the id of the workflow that they belong to.

    The SDK's driver gives equal payloads of a workflow one object, and does not write it again. A collection that looks between could then
    remove what a request in flight relies on, so each payload is made unlike the others first. What it is given is encrypted already if
    a codec is set. Raises ServiceUnavailable while the bucket is lost; Temporal's retries then store or load again.
    """

    def __init__(self, bucket: Bucket, *, only: str = "") -> None:
        """`only`: how the ids of those workflows begin whose payloads are loaded; others' count as gone."""
        super().__init__(bucket, bucket.name, DRIVER, MOST_BYTES)
        self._only = only
        self._room = MOST_KEY_BYTES - len(bucket.prefix)

    def takes(self, target: StorageDriverActivityInfo | StorageDriverWorkflowInfo | None) -> bool:
        """Whether what is stored for `target` can be found again: it is a workflow, and its id fits into a key."""
        if not isinstance(target, StorageDriverWorkflowInfo) or not target.id:
            return False
        named = f"{_folder(target.namespace)}{_coded(target.type or 'null')}/wi/{_coded(target.id)}/ri/"
        return len(named) + len(str(uuid4())) + len("/d/sha256/") + 64 <= self._room

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Stores payloads and returns what to put into the history instead."""
        with _own_errors():
            return await super().store(context, [_alone(payload) for payload in payloads])

    async def retrieve(self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]) -> list[Payload]:
        """Loads what `store` stored, in the order of `claims`. Raises PayloadGone if one isn't there."""
        for claim in claims:
            if not (workflow_of(claim.claim_data.get("key", "")) or "").startswith(self._only):
                raise PayloadGone("a payload is another tenant's")
        with _own_errors():
            payloads = await super().retrieve(context, claims)
        for payload in payloads:
            payload.metadata.pop(ALONE, None)
        return payloads


class AbsentBucket(StorageDriver):
    """Stands for the bucket in a process that is not told of one: says so to whoever needs a payload from there."""

    def name(self) -> str:
        """Under which histories refer to payloads in S3."""
        return DRIVER

    async def store(self, context: StorageDriverStoreContext, payloads: Sequence[Payload]) -> list[StorageDriverClaim]:
        """Never asked for."""
        raise no_bucket()

    async def retrieve(self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]) -> list[Payload]:
        """Raises PayloadElsewhere."""
        raise no_bucket()


class S3Payloads:
    """What S3Driver stored for the workflows of a namespace (a PayloadStore)."""

    driver = DRIVER

    def __init__(self, bucket: Bucket, database: Database, namespace: str) -> None:
        self._bucket = bucket
        self._database = database
        self._under = _folder(namespace)

    async def workflows(self, before: datetime) -> list[str]:
        """The workflows that have payloads from before a time: looks through the whole bucket, as far as it is ours."""
        found = set()
        async for key, at in self._bucket.objects(self._under, versions=await self._bucket.keeps_versions()):
            if at <= before and (workflow_id := workflow_of(key)):
                found.add(workflow_id)
        return sorted(found)

    async def of_workflow(self, workflow_id: str) -> list[Stored]:
        """All payloads of a workflow id. Who wrote one may not have known the workflow's type."""
        versions = await self._bucket.keeps_versions()
        found = {}
        for folder in await self._bucket.folders(self._under):
            async for key, at in self._bucket.objects(f"{folder}wi/{_coded(workflow_id)}/", versions=versions):
                if workflow_of(key):
                    found[key] = Stored(key, at)
        return list(found.values())

    async def remove(self, keys: Collection[str], erasure_id: str | None = None) -> int:
        """Removes payloads. Each is counted before it goes, once: who comes again, having died between, finds it counted."""
        if erasure_id is not None:
            names = [name_of(key) for key in keys]
            async with self._database.connection() as connection:
                await sql.count_erased_objects(connection, erasure_id=erasure_id, names=names)
        await self._bucket.remove(keys)
        return len(keys)


def workflow_of(key: str) -> str | None:
    """The workflow that an object belongs to; None for one that is none of the driver's."""
    match = KEY.fullmatch(key)
    return unquote(match[2]) if match else None


def no_bucket() -> PayloadElsewhere:
    """The one error of a process that would need the bucket and is not told of it."""
    return PayloadElsewhere("a history refers to payloads in S3: set OUTLAST_PAYLOADS__S3_BUCKET to the bucket that holds them")


def _folder(namespace: str) -> str:
    return f"v0/ns/{_coded(namespace)}/wt/"


def _coded(text: str) -> str:
    """A part of a key as the SDK's driver writes it."""
    return quote(text, safe="!*'()").replace("~", "%7E")


def _alone(payload: Payload) -> Payload:
    alone = Payload()
    alone.CopyFrom(payload)
    alone.metadata[ALONE] = uuid4().bytes
    return alone


@contextmanager
def _own_errors() -> Iterator[None]:
    """The driver wraps what its client raises; callers get that as it was."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error.__cause__, OutlastError):
            raise error.__cause__ from error.__cause__.__cause__
        raise


__all__ = ["AbsentBucket", "S3Driver", "S3Payloads", "no_bucket", "workflow_of"]
