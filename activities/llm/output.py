"""What a server tool returned, as JSON text that every store takes."""

import json
import math
from collections.abc import Mapping
from typing import Any

from pydantic_ai.messages import BinaryContent, ToolReturn
from pydantic_core import to_jsonable_python

from activities.llm.text import well_formed


def to_output(value: Any) -> str:
    """The value as JSON text. Binary content becomes a word about it, NaN and infinities become null, unknown objects their `str`.

    Of a ToolReturn it is the return value. Raises what pydantic raises for objects that don't serialize, and RecursionError for
    a value that contains itself.
    """
    return json.dumps(_plain(value.return_value if isinstance(value, ToolReturn) else value), ensure_ascii=False, allow_nan=False)


def _plain(value: Any) -> Any:
    match value:
        case None | bool() | int() | float() | str():
            return _scalar(value)
        case Mapping():
            return {_key(key): _plain(member) for key, member in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_plain(member) for member in value]
        case BinaryContent():
            return _placeholder(value.media_type, value.data)
        case bytes() | bytearray():
            return _placeholder("binary", value)
        case _:
            return _plain(to_jsonable_python(value, fallback=str, bytes_mode="base64"))


def _scalar(value: float | str | None) -> float | str | None:
    if isinstance(value, str):
        return well_formed(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _key(key: Any) -> str:
    return well_formed(key if isinstance(key, str) else str(to_jsonable_python(key, fallback=str)))


def _placeholder(media_type: str, data: bytes | bytearray) -> str:
    return f"[{media_type}, {len(data)} bytes, not kept]"
