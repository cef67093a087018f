"""The secrets of an `outlast dev`: made at its first start, kept in its data folder, used by every API on that folder."""

import base64
import os
import secrets
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from cli.endpoints import Endpoints
from settings import Settings, SigningSettings
from workflows.contracts.errors import SetupError

FILE = "secrets.json"
KEY_BYTES = 32


class Secrets(BaseModel):
    """What the file holds. `signing_keys` are as OUTLAST_SIGNING__KEYS lists them."""

    model_config = ConfigDict(extra="ignore")

    signing_keys: list[str]


def keep_secrets(folder: Path) -> Path:
    """The file with the secrets of a data folder, for its owner's eyes alone. Made if it is missing, whole or not at all.

    Raises SetupError for a file that can't be read or written.
    """
    path = folder / FILE
    try:
        if path.exists():
            path.chmod(0o600)
        else:
            draft = folder / f"{FILE}.new"
            draft.unlink(missing_ok=True)
            made = Secrets(signing_keys=[f"dev:{base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()}"])
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
                file.write(made.model_dump_json(indent=2) + "\n")
            draft.replace(path)
    except OSError as error:
        raise SetupError(f"{path} can't be used: {error.strerror or error}") from error
    return path


def signed_with(settings: Settings, path: Path) -> Settings:
    """The settings with the signing keys of a file, unless they have their own. Raises SetupError for a file that can't be read."""
    if settings.signing.keys:
        return settings
    try:
        found = Secrets.model_validate_json(path.read_text())
    except (OSError, ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else "it holds no signing keys; without it the next start makes new ones"
        raise SetupError(f"{path} can't be read: {why}") from error
    keys = SigningSettings(keys=[SecretStr(key) for key in found.signing_keys])
    return settings.model_copy(update={"signing": keys})


def with_secrets(found: Endpoints) -> Endpoints:
    """The same endpoints with the secrets of the `outlast dev` whose services are used, where none are configured. Raises SetupError."""
    if found.record is None or not found.record.secrets:
        return found
    return replace(found, settings=signed_with(found.settings, Path(found.record.secrets)))
