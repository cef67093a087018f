"""A bucket in S3, or in a store that speaks its protocol: the few requests that large payloads need, and what their errors mean."""

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from temporalio.contrib.aws.s3driver import S3StorageDriverClient

from activities.db.payloads import PayloadGone
from settings import PayloadSettings
from workflows.contracts.errors import ServiceUnavailable, SetupError

if TYPE_CHECKING:
    from aiobotocore.config import AioConfig

CONNECTIONS = 50
"""Connections to the store that a process has at most."""

AT_ONCE = 16
"""Objects removed side by side: each by a request of its own, because not every store takes many at once."""

ATTEMPTS = 3
"""S3 asks for repetitions where it is busy (503 Slow Down), and cuts idle connections. `s3_timeout_seconds` bounds all of them."""

_NO_VERSIONS = ("NotImplemented", "MethodNotAllowed", "501", "405")
"""What stores answer that know nothing of versions."""


class Bucket(S3StorageDriverClient):
    """Puts, gets, lists and removes objects of one bucket, under one prefix. It connects when first used, as who the AWS SDK's own
    configuration says. Each method raises ServiceUnavailable where the store does not answer or refuses.

    The bucket's name in a history is not heeded: it would let whoever writes one read whatever our credentials may, and a bucket
    that was moved could not be read.
    """

    def __init__(self, settings: PayloadSettings) -> None:
        """Raises SetupError if the client that speaks S3 is not installed."""
        check_client(settings)
        import aiobotocore.session

        self.name = settings.s3_bucket
        self.prefix = settings.s3_prefix
        self._settings = settings
        self._session = aiobotocore.session.get_session()
        self._stack = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._removing = asyncio.Semaphore(AT_ONCE)
        self._client: Any = None

    @property
    def where(self) -> str:
        """The place in words, for operators."""
        store = f" at {self._settings.s3_endpoint_url}" if self._settings.s3_endpoint_url else ""
        return f"s3://{self.name}/{self.prefix}{store}"

    async def close(self) -> None:
        """Closes its connections."""
        await self._stack.aclose()

    async def put_object(self, *, bucket: str, key: str, data: bytes) -> None:
        """Writes an object."""
        await self._ask("put_object", Key=self.prefix + key, Body=data)

    async def object_exists(self, *, bucket: str, key: str) -> bool:
        """Never: no two payloads have one key (S3Driver), so it need not be asked, and whoever writes need not be allowed to list."""
        return False

    async def get_object(self, *, bucket: str, key: str) -> bytes:
        """Reads an object. Raises PayloadGone if it isn't there."""
        body: bytes = (await self._ask("get_object", Key=self.prefix + key))["Body"]
        return body

    async def folders(self, under: str) -> list[str]:
        """How keys go on after `under`, up to and with the next slash; whole, from their beginning."""
        found = [entry async for entry in self._listed("list_objects_v2", "CommonPrefixes", Prefix=self.prefix + under, Delimiter="/")]
        return [entry["Prefix"].removeprefix(self.prefix) for entry in found]

    async def objects(self, under: str, *, versions: bool) -> AsyncIterator[tuple[str, datetime]]:
        """Keys that begin so, each with the time when it was written, by the store's clock. `versions`: those too of which only old
        versions are left, and a key as often as it has some.
        """
        operation, what = ("list_object_versions", "Versions") if versions else ("list_objects_v2", "Contents")
        async for entry in self._listed(operation, what, Prefix=self.prefix + under):
            yield entry["Key"].removeprefix(self.prefix), entry["LastModified"]

    async def keeps_versions(self) -> bool:
        """Whether what is removed from the bucket stays there as an old version."""
        try:
            return "Status" in await self._ask("get_bucket_versioning")
        except ServiceUnavailable as error:
            if _code(error.__cause__) in _NO_VERSIONS:
                return False
            raise

    async def remove(self, keys: Collection[str]) -> None:
        """Removes objects with all their versions. One that isn't there counts as removed."""
        versions = await self.keeps_versions()
        removals = [asyncio.create_task(self._remove(self.prefix + key, versions)) for key in keys]
        try:
            await asyncio.gather(*removals)
        finally:
            for removal in removals:
                removal.cancel()

    async def probe(self) -> None:
        """Writes, reads and removes an object."""
        key, data = f"probe/{uuid4()}", b"outlast"
        await self.put_object(bucket=self.name, key=key, data=data)
        if await self.get_object(bucket=self.name, key=key) != data:
            raise ServiceUnavailable("payloads", f"the bucket {self.name} does not give back what was written")
        await self.remove([key])

    async def _remove(self, whole_key: str, versions: bool) -> None:
        async with self._removing:
            if not versions:
                await self._ask("delete_object", Key=whole_key)
                return
            found = [entry async for entry in self._listed("list_object_versions", "Versions", "DeleteMarkers", Prefix=whole_key)]
            for entry in found:
                await self._ask("delete_object", Key=entry["Key"], VersionId=entry["VersionId"])

    async def _listed(self, operation: str, *kinds: str, **which: str) -> AsyncIterator[dict[str, Any]]:
        async with self._answering(None) as client:
            async for page in client.get_paginator(operation).paginate(Bucket=self.name, **which):
                for kind in kinds:
                    for entry in page.get(kind, ()):
                        yield entry

    async def _ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        async with self._answering(self._settings.s3_timeout_seconds) as client:
            answer: dict[str, Any] = await getattr(client, operation)(Bucket=self.name, **arguments)
            if "Body" in answer:
                async with answer["Body"] as body:
                    answer["Body"] = await body.read()
            return answer

    @asynccontextmanager
    async def _answering(self, seconds: float | None) -> AsyncIterator[Any]:
        """The client, whose errors become ours."""
        from botocore import exceptions

        try:
            async with asyncio.timeout(seconds):
                yield await self._opened()
        except TimeoutError as error:
            raise ServiceUnavailable("payloads", f"the bucket {self.name} did not answer in time") from error
        except exceptions.ClientError as error:
            code = _code(error)
            if code == "NoSuchKey":
                raise PayloadGone("a payload is not in its bucket any more") from error
            raise ServiceUnavailable("payloads", f"the bucket {self.name} refused {error.operation_name}: {code}") from error
        except (exceptions.ConnectionError, exceptions.HTTPClientError, OSError) as error:
            # not its text, which has the whole URL
            raise ServiceUnavailable("payloads", f"the bucket {self.name} can't be reached: {type(error).__name__}") from error
        except (exceptions.BotoCoreError, ValueError) as error:
            raise ServiceUnavailable("payloads", f"the bucket {self.name} can't be used: {' '.join(str(error).split())}") from error

    async def _opened(self) -> Any:
        async with self._opening:
            if self._client is None:
                settings = self._settings
                client = self._session.create_client(
                    "s3", region_name=settings.s3_region or None, endpoint_url=settings.s3_endpoint_url or None, config=_config(settings)
                )
                self._client = await self._stack.enter_async_context(client)
        return self._client


def check_client(settings: PayloadSettings) -> None:
    """Raises SetupError if there is to be a bucket, and the client that speaks S3 is not installed."""
    if settings.s3_bucket:
        try:
            import aiobotocore.session  # noqa: F401
        except ImportError as error:
            raise SetupError("OUTLAST_PAYLOADS__S3_BUCKET is set, and the S3 client is not installed: install outlast[s3]") from error


def _config(settings: PayloadSettings) -> "AioConfig":
    """Other stores than AWS's rarely have a host name for each bucket, and not all know its newer checksums."""
    from aiobotocore.config import AioConfig

    other = {
        "s3": {"addressing_style": "path"},
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    return AioConfig(
        connect_timeout=settings.s3_timeout_seconds,
        read_timeout=settings.s3_timeout_seconds,
        max_pool_connections=CONNECTIONS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
        **(other if settings.s3_endpoint_url else {}),
    )


def _code(error: BaseException | None) -> str:
    """S3's word for what is wrong, else the HTTP status."""
    answer: dict[str, Any] = getattr(error, "response", {})
    return str(answer.get("Error", {}).get("Code") or answer.get("ResponseMetadata", {}).get("HTTPStatusCode", ""))


__all__ = ["Bucket", "check_client"]
