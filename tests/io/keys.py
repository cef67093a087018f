"""Codec keys that are the same wherever their id is."""

from base64 import b64encode

from pydantic import SecretStr

from settings import CodecSettings


def keys(*ids: str) -> CodecSettings:
    """Settings with one key per id, the first one encrypting."""
    return CodecSettings(keys=[SecretStr(f"{name}:{b64encode(name[:1].encode() * 32).decode()}") for name in ids])
