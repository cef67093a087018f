"""What an operator of one tenant reads in Temporal's histories, and writes into them."""

from temporalio.api.common.v1 import Payload
from temporalio.converter import DefaultPayloadConverter

from activities.db.client import data_converter
from activities.db.encryption import PayloadUnreadable, codec_of
from activities.db.payloads import PayloadGone, PostgresDriver
from activities.db.pool import Database
from settings import Settings
from workflows.contracts.naming import tenant_prefix


class Codec:
    """The payloads of a tenant's workflows, in plain text and as they are kept."""

    def __init__(self, settings: Settings, database: Database, tenant: str) -> None:
        codec = codec_of(settings.codec.keys)
        self._codec = codec and codec.of(tenant, tenant)
        self._converter = data_converter(PostgresDriver(database, only=tenant_prefix(tenant)), self._codec)
        self._plain = DefaultPayloadConverter()

    async def shown(self, payload: Payload) -> Payload:
        """A payload in plain text, fetched first if the history only refers to it.

        What can't be read comes back as it was, so that the rest of a page shows. Raises ServiceUnavailable.
        """
        try:
            (value,) = await self._converter.decode([payload])
        except (PayloadGone, PayloadUnreadable, RuntimeError, KeyError, ValueError):
            return payload
        (plain,) = self._plain.to_payloads([value])
        return plain

    async def kept(self, payloads: list[Payload]) -> list[Payload]:
        """Payloads as the tenant's workflows keep them."""
        return payloads if self._codec is None else await self._codec.encode(payloads)
