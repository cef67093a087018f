"""What an operator of one tenant reads in Temporal's histories, and writes into them."""

from temporalio.api.common.v1 import Payload
from temporalio.converter import DefaultPayloadConverter

from activities.db.client import data_converter
from activities.db.encryption import AesGcmCodec, PayloadUnreadable
from activities.db.payloads import PayloadElsewhere, PayloadGone
from activities.db.storage import Storage
from workflows.contracts.naming import tenant_prefix

PLAIN = DefaultPayloadConverter()

UNREADABLE = (PayloadUnreadable, RuntimeError, KeyError, ValueError)
"""What is raised for a payload that is damaged, of no kind that we know, or encrypted with another key."""


class Codec:
    """The payloads of a tenant's workflows, in plain text and as they are kept. `codec` encrypts, if anything does."""

    def __init__(self, codec: AesGcmCodec | None, storage: Storage, tenant: str) -> None:
        self._codec = codec and codec.of(tenant, tenant)
        self._converter = data_converter(storage.external(only=tenant_prefix(tenant)), self._codec)

    async def shown(self, payload: Payload) -> Payload:
        """A payload in plain text, fetched first if the history only refers to it.

        What can't be read comes back as it was, so that the rest of a page shows. Raises ServiceUnavailable.
        """
        try:
            return await self.read(payload)
        except (PayloadElsewhere, PayloadGone, *UNREADABLE):
            return payload

    async def read(self, payload: Payload) -> Payload:
        """The same, and raises PayloadElsewhere, PayloadGone or one of UNREADABLE for what can't be read."""
        (value,) = await self._converter.decode([payload])
        (plain,) = PLAIN.to_payloads([value])
        return plain

    async def kept(self, payloads: list[Payload]) -> list[Payload]:
        """Payloads as the tenant's workflows keep them."""
        return payloads if self._codec is None else await self._codec.encode(payloads)
