"""Secrets in settings: `id:base64`, several of them, so that one can be replaced while what was made with another is still about."""

import base64
import binascii
import re
from collections.abc import Iterable

from pydantic import SecretStr

from workflows.contracts.errors import SetupError

_KEY = re.compile(r"([A-Za-z0-9._-]{1,32}):([A-Za-z0-9+/_-]+={0,2})")


def read_keys(setting: str, keys: Iterable[SecretStr], *, least: int, most: int | None = None) -> dict[str, bytes]:
    """The secrets of a setting by their ids, in its order. `least` and `most` bound their bytes.

    Raises SetupError, which shows none of them, for one that can't be used.
    """
    many = f"{least}" if least == most else f"at least {least}"
    how = f"make one with `openssl rand -base64 {least}` and write it as `id:base64`, such as {setting}=a:…"
    secrets: dict[str, bytes] = {}
    for place, key in enumerate(keys, start=1):
        match = _KEY.fullmatch(key.get_secret_value())
        if match is None:
            raise SetupError(f"{setting}: key {place} can't be read: {how}")
        name, secret = match[1], _decoded(match[2])
        if secret is None:
            raise SetupError(f"{setting}: key {name} is not base64: {how}")
        if len(secret) < least or len(secret) > (most or len(secret)):
            raise SetupError(f"{setting}: key {name} has {len(secret)} bytes, {many} are needed: {how}")
        if name in secrets:
            raise SetupError(f"{setting}: two keys have the id {name}")
        secrets[name] = secret
    return secrets


def _decoded(text: str) -> bytes | None:
    padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    try:
        return base64.b64decode(padded.replace("-", "+").replace("_", "/"), validate=True)
    except binascii.Error:
        return None
