"""Settings from this process's environment: unknown keys and values that don't fit are one line, and no line shows a secret."""

import difflib
import os
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from settings import PREFIX, Settings
from workflows.contracts.errors import SetupError


def known_keys(model: type[BaseModel] = Settings, prefix: str = PREFIX) -> Iterator[tuple[str, Any]]:
    """Every environment key with its pydantic field, groups first to last."""
    for name, field in model.model_fields.items():
        group = field.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            yield from known_keys(group, f"{prefix}{name.upper()}__")
        else:
            yield f"{prefix}{name.upper()}", field


def _secret_keys() -> set[str]:
    """Keys whose values no message may show."""
    return {key for key, field in known_keys() if "SecretStr" in str(field.annotation) or key.endswith("__URL")}


def load_settings(environ: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """The settings of this process.

    Raises SetupError, in one line, for an unknown `OUTLAST_*` key (naming the nearest known one) or a value that doesn't fit.
    """
    known = {key for key, _ in known_keys()}
    for key in os.environ if environ is None else environ:
        if key.upper().startswith(PREFIX) and key.upper() not in known:
            near = difflib.get_close_matches(key.upper(), known, n=1, cutoff=0.0)
            raise SetupError(f"unknown setting {key}: did you mean {near[0]}? (docs/configuration.md lists them all)")
    try:
        return Settings(**overrides)
    except ValidationError as error:
        first = error.errors()[0]
        key = PREFIX + "__".join(str(part).upper() for part in first["loc"] if isinstance(part, str))
        got = "" if isinstance(first["input"], dict) or key in _secret_keys() else f" (got {first['input']!r})"
        raise SetupError(f"{key}: {first['msg'].removeprefix('Value error, ')}{got}") from error
