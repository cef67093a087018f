"""Exports as text: a line of JSON a message, Markdown, and the messages of two libraries. Each is made piece by piece."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any, assert_never
from uuid import UUID

from pydantic_core import to_json

from activities.db.exports import Exported, Exports, Format
from activities.db.messages import DisplayRow

_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")
_NO_OUTPUT = "[no result was recorded: {status}]"


@dataclass(frozen=True, slots=True)
class Exportable:
    """What is exported: one path, or with `leaf_id` None the whole tree. `title` heads a Markdown document."""

    session_uid: UUID
    session_id: str
    title: str | None
    active_leaf_id: str | None
    leaf_id: str | None

    @classmethod
    def of(cls, session: Any, leaf_id: str | None, format: Format) -> "Exportable":
        """The path to `leaf_id`; without one JSON lines hold the whole tree, and the other formats, which know no tree, the active path."""
        wanted = leaf_id or (None if format == "jsonl" else session.active_leaf_id)
        return cls(session.session_uid, session.session_id, session.title, session.active_leaf_id, wanted)


MEDIA_TYPES: dict[Format, str] = {
    "jsonl": "application/x-ndjson",
    "markdown": "text/markdown; charset=utf-8",
    "openai": "application/json",
    "pydantic-ai": "application/json",
}
_ENDINGS: dict[Format, str] = {"jsonl": "jsonl", "markdown": "md", "openai": "openai.json", "pydantic-ai": "pydantic-ai.json"}


def file_name(session_id: str, format: Format) -> str:
    """A name for the file, for any file system."""
    return f"{_UNSAFE.sub('_', session_id)}.{_ENDINGS[format]}"


async def exported(exports: Exports, what: Exportable, format: Format) -> AsyncGenerator[str, None]:
    """The export in pieces of text. Raises ExportCut and ServiceUnavailable in the middle: what came by then is not whole."""
    tree = format == "jsonl" and what.leaf_id is None
    messages = exports.messages(what.session_uid, what.leaf_id, what.active_leaf_id, tree=tree, as_model_saw=format == "pydantic-ai")
    match format:
        case "jsonl":
            pieces = _jsonl(messages, exports, what.session_uid if tree else None)
        case "markdown":
            pieces = _document(what.title or what.session_id, messages)
        case "openai":
            pieces = _array(_openai(message) async for message in messages)
        case "pydantic-ai":
            pieces = _array(message.model_messages async for message in messages)
        case _:
            assert_never(format)
    async for piece in pieces:
        yield piece


async def _jsonl(messages: AsyncIterator[Exported], exports: Exports, tree_of: UUID | None) -> AsyncIterator[str]:
    async for message in messages:
        yield _lines(message)
    for row in await exports.pending_steering(tree_of) if tree_of else []:
        yield _line(row, active=False)


async def _document(title: str, messages: AsyncIterator[Exported]) -> AsyncIterator[str]:
    yield f"# {title}\n"
    async for message in messages:
        yield "".join(_markdown(message))


async def _array(parts: AsyncIterator[list[str]]) -> AsyncIterator[str]:
    """A JSON array of all the parts, one a line."""
    before = "["
    async for part in parts:
        if part:
            yield before + "\n" + ",\n".join(part)
            before = ","
    yield "[]\n" if before == "[" else "\n]\n"


# JSON lines: rows as `GET …/messages` shows them, steering behind the message that took it.


def _lines(message: Exported) -> str:
    rows = [message.row, *(row for _, row in message.steering)]
    return "".join(_line(row, active=message.active) for row in rows)


def _line(row: DisplayRow, *, active: bool) -> str:
    return to_json({**row, "active": active}).decode() + "\n"


# Markdown: what a person reads.


def _markdown(message: Exported) -> Iterator[str]:
    row = message.row
    if row["role"] != "assistant":
        yield _said(row["role"], row["created_at"], row["content"])
        for file in row["attachments"]:
            yield f"\n*{_attachment(file)}*\n"
        return
    yield _said("assistant", row["updated_at"], "")
    for part in _parts(message):
        if part["kind"] == "text":
            yield f"\n{part['text']}\n"
        elif part["kind"] == "steering":
            yield f"\n### user, while this was written\n\n{part['row']['content']}\n"
        elif part["kind"] == "tool_group":
            for tool in part["tools"]:
                yield _tool(tool)
    if row["error"]:
        yield f"\n*This turn ended with an error, `{row['error']['type']}`: {row['error']['message']}*\n"


def _said(role: str, at: datetime, content: str) -> str:
    return f"\n## {role}, {at:%Y-%m-%d %H:%M:%S} UTC\n" + (f"\n{content}\n" if content else "")


def _tool(tool: dict[str, Any]) -> str:
    status = tool.get("status") or ("completed" if "output" in tool else "open")
    parts = [f"\n### tool {tool['name']}, {status}\n", _fenced(_text(tool["input"]), "json")]
    return "".join(parts + ([_fenced(_text(tool["output"]))] if "output" in tool else []))


def _fenced(text: str, kind: str = "") -> str:
    """Text between fences that are longer than any run of backticks in it."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"\n{fence}{kind}\n{text}\n{fence}\n"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _attachment(file: dict[str, Any]) -> str:
    return f"attachment: {file['name'] or 'without a name'}, {file['media_type']}"


def _parts(message: Exported) -> Iterator[dict[str, Any]]:
    """The segments of an assistant's message, and what it was told between them."""
    told = list(message.steering)
    for number, segment in enumerate(message.row["segments"]):
        while told and told[0][0] <= number:
            yield {"kind": "steering", "row": told.pop(0)[1]}
        yield segment
    for _, row in told:
        yield {"kind": "steering", "row": row}


# Chat completions: messages that may be sent as they are, every call with its result.


def _openai(message: Exported) -> list[str]:
    row = message.row
    if row["role"] != "assistant":
        content = "\n\n".join(filter(None, (row["content"], *(f"[{_attachment(file)}]" for file in row["attachments"]))))
        return [_json({"role": "user", "content": content})] if content else []
    made: list[dict[str, Any]] = []
    text = ""
    for part in _parts(message):
        if part["kind"] == "text":
            text += part["text"]
        elif part["kind"] == "steering":
            made += [*_spoken(text), {"role": "user", "content": part["row"]["content"]}]
            text = ""
        elif part["kind"] == "tool_group" and (ended := [tool for tool in part["tools"] if _ended(tool)]):
            made += [_calling(text, ended), *map(_result, ended)]
            text = ""
    return [_json(one) for one in (*made, *_spoken(text))]


def _spoken(text: str) -> list[dict[str, Any]]:
    return [{"role": "assistant", "content": text}] if text else []


def _ended(tool: dict[str, Any]) -> bool:
    """An open call has no result yet, and a call without one would make the whole list invalid."""
    return "output" in tool or "outcome" in tool


def _calling(text: str, tools: list[dict[str, Any]]) -> dict[str, Any]:
    calls = [
        {
            "id": tool["id"],
            "type": "function",
            "function": {"name": tool["name"], "arguments": json.dumps(tool["input"], ensure_ascii=False)},
        }
        for tool in tools
    ]
    return {"role": "assistant", "content": text or None, "tool_calls": calls}


def _result(tool: dict[str, Any]) -> dict[str, Any]:
    content = _text(tool["output"]) if "output" in tool else _NO_OUTPUT.format(status=tool.get("status") or tool["outcome"])
    return {"role": "tool", "tool_call_id": tool["id"], "content": content}


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
