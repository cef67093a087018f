"""Where large payloads are kept, by settings: in Postgres or in S3, and readable from both."""

from temporalio.api.common.v1 import Payload
from temporalio.converter import ExternalStorage, StorageDriver, StorageDriverSelectContext

from activities.db.bucket import Bucket
from activities.db.payloads import PayloadStore, PostgresDriver, PostgresPayloads
from activities.db.pool import Database
from activities.db.s3 import AbsentBucket, S3Driver, S3Payloads
from settings import Settings


class Storage:
    """The external storage of one process. Made without asking anybody; the bucket is connected to when it is first used."""

    def __init__(self, settings: Settings, database: Database) -> None:
        """Raises SetupError if there is to be a bucket and the client for it is not installed."""
        self._database = database
        self._new_in_s3 = settings.payloads.driver == "s3"
        self._inline_limit = settings.temporal.inline_limit_bytes
        self.bucket = Bucket(settings.payloads) if settings.payloads.s3_bucket else None

    def external(self, *, only: str = "", read_only: bool = False) -> ExternalStorage:
        """For a data converter. `only`: how the ids of those workflows begin whose payloads are loaded; others' count as gone.

        `read_only`: nothing is stored, as for a replay, whose commands go nowhere and would leave their payloads behind.
        """
        postgres = PostgresDriver(self._database, only=only)
        s3 = S3Driver(self.bucket, only=only) if self.bucket else None

        def chosen(context: StorageDriverSelectContext, payload: Payload) -> StorageDriver | None:
            """Where a new payload goes: as configured, unless S3 has no key under which it would be found again."""
            if read_only:
                return None
            return s3 if self._new_in_s3 and s3 is not None and s3.takes(context.target) else postgres

        return ExternalStorage(drivers=[postgres, s3 or AbsentBucket()], driver_selector=chosen, payload_size_threshold=self._inline_limit)

    def stores(self, namespace: str) -> list[PayloadStore]:
        """Every place that payloads of the workflows of a namespace can be in."""
        postgres = PostgresPayloads(self._database)
        return [postgres, S3Payloads(self.bucket, self._database, namespace)] if self.bucket else [postgres]

    async def close(self) -> None:
        """Closes what it opened; the database is not its own."""
        if self.bucket:
            await self.bucket.close()


__all__ = ["Storage"]
