"""Payloads that only holders of a key can read: AES-256-GCM under a ring of keys, for everything that Temporal is given to keep.

Search attributes, workflow ids and types stay readable: operators find sessions by them.
"""

import os
from collections.abc import Iterable, Mapping, Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import SecretStr
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    ActivitySerializationContext,
    PayloadCodec,
    SerializationContext,
    WithSerializationContext,
    WorkflowSerializationContext,
)

from activities.db.keyring import read_keys
from workflows.contracts.errors import OutlastError
from workflows.contracts.naming import tenant_of

KEY_BYTES = 32
NONCE_BYTES = 12
"""Random ones, so one key should encrypt fewer than 2^32 payloads (NIST SP 800-38D, 8.3): replace it before."""

ENCODING = b"binary/encrypted"
KEY_ID = "encryption-key-id"
TENANT = "outlast-tenant"


class PayloadUnreadable(OutlastError):
    """A payload that none of the keys opens, or that is another tenant's. Nothing is lost: with the key it can be read again."""


class AesGcmCodec(PayloadCodec, WithSerializationContext):
    """Encrypts with the first key of the ring; decrypts with the one that a payload names. What is not encrypted passes as it is, so
    that sessions from before the first key go on.

    Each payload says whose it is, and that is bound to it: `reader` is the only tenant whose payloads are opened, None opens all.
    """

    def __init__(self, secrets: Mapping[str, bytes], *, reader: str | None = None, tenant: str = "") -> None:
        self._ring = {name: AESGCM(secret) for name, secret in secrets.items()}
        self._first = next(iter(self._ring))
        self._reader = reader
        self._tenant = tenant

    def with_context(self, context: SerializationContext) -> "AesGcmCodec":
        """The same for the payloads of one workflow: its tenant is theirs."""
        workflow_id = context.workflow_id if isinstance(context, WorkflowSerializationContext | ActivitySerializationContext) else None
        return self.of(tenant_of(workflow_id or "") or "", self._reader)

    def of(self, tenant: str, reader: str | None = None) -> "AesGcmCodec":
        """The same ring, for what a tenant writes and, if `reader` is given, only for what that one may read."""
        other = object.__new__(AesGcmCodec)
        other._ring, other._first, other._reader, other._tenant = self._ring, self._first, reader, tenant
        return other

    async def encode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """Each payload, metadata and all, inside an encrypted one."""
        return [self._encrypted(payload) for payload in payloads]

    async def decode(self, payloads: Sequence[Payload]) -> list[Payload]:
        """The payloads again. Raises PayloadUnreadable."""
        return [self._decrypted(payload) if payload.metadata.get("encoding") == ENCODING else payload for payload in payloads]

    def _encrypted(self, payload: Payload) -> Payload:
        nonce = os.urandom(NONCE_BYTES)
        metadata = {"encoding": ENCODING, KEY_ID: self._first.encode(), TENANT: self._tenant.encode()}
        sealed = self._ring[self._first].encrypt(nonce, payload.SerializeToString(), _bound(metadata))
        return Payload(metadata=metadata, data=nonce + sealed)

    @property
    def ids(self) -> list[str]:
        """The ids of its keys; the first one encrypts."""
        return list(self._ring)

    def _decrypted(self, payload: Payload) -> Payload:
        name = payload.metadata.get(KEY_ID, b"").decode(errors="replace")
        if name not in self._ring:
            raise PayloadUnreadable(f"{_sealed_with(name)}, which is not in OUTLAST_CODEC__KEYS: add it behind the first one")
        if self._reader is not None and payload.metadata.get(TENANT) != self._reader.encode():
            raise PayloadUnreadable("a payload is another tenant's")
        nonce, sealed = payload.data[:NONCE_BYTES], payload.data[NONCE_BYTES:]
        try:
            return Payload.FromString(self._ring[name].decrypt(nonce, sealed, _bound(payload.metadata)))
        except (InvalidTag, ValueError) as error:
            raise PayloadUnreadable(f"a payload is damaged, or the key {name} is another one now") from error


def codec_of(keys: Iterable[SecretStr]) -> AesGcmCodec | None:
    """The codec of configured keys; none if there are none. Raises SetupError for a key that can't be used."""
    secrets = read_keys("OUTLAST_CODEC__KEYS", keys, least=KEY_BYTES, most=KEY_BYTES)
    return AesGcmCodec(secrets) if secrets else None


def _key_of(payload: Payload) -> str | None:
    """The id of the key that a payload was encrypted with; None if it is not encrypted."""
    return payload.metadata.get(KEY_ID, b"").decode(errors="replace") if payload.metadata.get("encoding") == ENCODING else None


def locked(payloads: Iterable[Payload]) -> PayloadUnreadable | None:
    """What is to be said of payloads where there is no key at all; None if none of them needs one."""
    for name in map(_key_of, payloads):
        if name is not None:
            return PayloadUnreadable(f"{_sealed_with(name)}, and OUTLAST_CODEC__KEYS is empty: set it to the installation's keys")
    return None


def _sealed_with(name: str) -> str:
    return f"a payload was encrypted with the key {name}"


def _bound(metadata: Mapping[str, bytes]) -> bytes:
    """What may not be changed about an encrypted payload. Lengths keep two fields from being read as others."""
    parts = [metadata.get(name, b"") for name in ("encoding", KEY_ID, TENANT)]
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


__all__ = ["ENCODING", "KEY_BYTES", "AesGcmCodec", "PayloadUnreadable", "codec_of", "locked"]
