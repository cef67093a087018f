"""The secrets of an `outlast dev`: made at its first start, kept in its data folder, used by every API on that folder."""

import base64
import secrets
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from cli.endpoints import Endpoints
from cli.private import write_private
from settings import CodecSettings, Settings, SigningSettings
from workflows.contracts.errors import SetupError

FILE = "secrets.json"
KEY_BYTES = 32


class Secrets(BaseModel):
    """What the file holds: keys as OUTLAST_SIGNING__KEYS and OUTLAST_CODEC__KEYS list them.

    No codec key: payloads are not encrypted. Once there is one, it stays: what was encrypted with it can't be read without.
    """

    model_config = ConfigDict(extra="ignore")

    signing_keys: list[str]
    codec_keys: list[str] = []


def keep_secrets(folder: Path, *, encrypted: bool) -> Path:
    """The file with the secrets of a data folder, for its owner's eyes alone. What is missing in it is made, whole or not at all.

    `encrypted`: it has a codec key too.

    Raises SetupError for a file that can't be read or written.
    """
    path = folder / FILE
    try:
        if path.exists():
            path.chmod(0o600)
        kept = _read(path) if path.exists() else Secrets(signing_keys=[_made()])
        if encrypted and not kept.codec_keys:
            kept = kept.model_copy(update={"codec_keys": [_made()]})
        elif path.exists():
            return path
    except OSError as error:
        raise SetupError(f"{path} can't be used: {error.strerror or error}") from error
    write_private(path, kept.model_dump_json(indent=2) + "\n")
    return path


def _made() -> str:
    return f"dev:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"


def _read(path: Path) -> Secrets:
    try:
        return Secrets.model_validate_json(path.read_text())
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds no signing keys"
        raise SetupError(f"{path} can't be read: {why}; without it the next start makes new secrets") from error


def furnished(settings: Settings, path: Path) -> Settings:
    """The settings with the keys of a file, where they have none of their own. Raises SetupError for a file that can't be read."""
    if settings.signing.keys and settings.codec.keys:
        return settings
    found = _read(path)
    signing = settings.signing if settings.signing.keys else SigningSettings(keys=[SecretStr(key) for key in found.signing_keys])
    codec = settings.codec if settings.codec.keys else CodecSettings(keys=[SecretStr(key) for key in found.codec_keys])
    return settings.model_copy(update={"signing": signing, "codec": codec})


def with_secrets(found: Endpoints) -> Endpoints:
    """The same endpoints with the secrets of the `outlast dev` whose services are used, where none are configured. Raises SetupError."""
    if found.record is None or not found.record.secrets:
        return found
    return replace(found, settings=furnished(found.settings, Path(found.record.secrets)))
