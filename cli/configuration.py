"""Writes docs/configuration.md from the settings class: `python -m cli.configuration > docs/configuration.md`."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from cli.environment import known_keys
from settings import PREFIX, Settings

HEAD = """# Configuration

Written by `make docs` from `settings.py`; `make check` compares the two.

Every setting is an environment variable. A part of a key after `__` belongs to the group before it. Lists are separated by commas. The unit
of a duration is the last word of its key, and decimals are accepted. An unknown key that starts with `OUTLAST_` stops the start with one line
that names the nearest known one, and so does a value that doesn't fit.

Temporal's address, namespace, TLS and API key are not Outlast's: `TEMPORAL_ADDRESS`, `TEMPORAL_NAMESPACE`, `TEMPORAL_API_KEY`, `TEMPORAL_TLS…` and
the profile file that `TEMPORAL_CONFIG_FILE` and `TEMPORAL_PROFILE` name are read as Temporal's own tools read them. A model provider's key is that
provider's own variable, such as `OPENAI_API_KEY` and `OPENAI_BASE_URL`.
"""


def kind(field: FieldInfo) -> str:
    """The type of a value in words."""
    annotation: Any = field.annotation
    if get_origin(annotation) is Literal:
        return " · ".join(f"`{value}`" for value in get_args(annotation))
    names = {bool: "true or false", int: "integer", float: "number", str: "text", SecretStr: "text", Path: "path"}
    return names.get(annotation, "list")


def default(field: FieldInfo) -> str:
    """The default as it would be written in the environment."""
    value: Any = field.get_default(call_default_factory=True)
    if isinstance(value, bool):
        value = str(value).lower()
    elif isinstance(value, list):
        value = ",".join(value)
    elif isinstance(value, float):
        value = f"{value:g}"
    return f"`{value}`" if str(value) else "empty"


def row(key: str, field: FieldInfo) -> str:
    """One setting as a line of a table."""
    return f"| `{key}` | {kind(field)} | {default(field)} | {field.description} |"


def tables() -> Iterator[str]:
    """A table of the settings without a group, then one for each group."""
    groups: dict[str, list[str]] = {}
    for key, field in known_keys():
        group = key.removeprefix(PREFIX).partition("__")[0] if "__" in key else ""
        groups.setdefault(group, []).append(row(key, field))
    for group in sorted(groups, key=lambda name: name != ""):
        yield f"## {title(group)}"
        yield "\n".join(["| variable | value | default | meaning |", "|---|---|---|---|", *groups[group]])


def title(group: str) -> str:
    """A group's heading: the first sentence of its class."""
    if not group:
        return "General"
    annotation = Settings.model_fields[group.lower()].annotation
    assert isinstance(annotation, type) and issubclass(annotation, BaseModel)
    return (annotation.__doc__ or group).partition(". ")[0].rstrip(".")


def document() -> str:
    """The whole page."""
    return "\n\n".join([HEAD.rstrip(), *tables()]) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
