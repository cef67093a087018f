"""From a chat-completions request to what a very small model is shown, and the rule that decides when it calls a tool.

A model of this size can't choose tools. So the rule is simple and in plain sight: it calls the tools that the newest message, if it
is the user's, names. Their arguments are the model's own, held to the tool's schema by a grammar.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Message = Mapping[str, Any]


@dataclass(frozen=True)
class Entry:
    """One entry of the conversation as the model was trained to read it: `system`, `user` or `assistant`."""

    role: str
    text: str


@dataclass(frozen=True)
class Tool:
    """A tool on offer. `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


def offered(request: Mapping[str, Any]) -> list[Tool]:
    """The tools of a request."""
    functions = [tool["function"] for tool in request.get("tools") or ()]
    return [Tool(one["name"], one.get("description") or "", one.get("parameters") or {"type": "object"}) for one in functions]


def called(request: Mapping[str, Any]) -> list[Tool]:
    """The tools that this request's answer calls, in the order in which the user names them; none: it is answered in words."""
    tools, choice = offered(request), request.get("tool_choice") or "auto"
    if isinstance(choice, Mapping):
        return [tool for tool in tools if tool.name == choice["function"]["name"]]
    newest = request["messages"][-1]
    words = text_of(newest) if newest["role"] == "user" and choice != "none" else ""
    named = sorted((tool for tool in tools if tool.name in words), key=lambda tool: words.index(tool.name))
    return named or (tools[:1] if choice == "required" else [])


def entries(messages: Sequence[Message]) -> list[Entry]:
    """The conversation. Calls become words of the assistant, and their results a request of the user to say them."""
    return [_entry(message) for message in messages]


def instruction(tool: Tool, messages: Sequence[Message]) -> Entry:
    """Asks for a tool's arguments, with the user's newest words once more: so small a model looks no further back."""
    words = next((text_of(message) for message in reversed(messages) if message["role"] == "user"), tool.description)
    return Entry("user", f"Write the arguments of {tool.name} as JSON: {words}")


def text_of(message: Message) -> str:
    """The text of a message, whichever of the two forms it has."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _entry(message: Message) -> Entry:
    match message["role"]:
        case "assistant":
            calls = [f"{call['function']['name']}: {_plain(call['function']['arguments'])}" for call in message.get("tool_calls") or ()]
            return Entry("assistant", "\n".join(filter(None, [text_of(message), *calls])))
        case "tool":
            return Entry("user", f"Put this into one sentence: {_plain(text_of(message))}.")
        case "system" | "developer":
            return Entry("system", text_of(message))
        case _:
            return Entry("user", text_of(message))


def _plain(text: str) -> str:
    """A JSON object as words; a model this small reads braces as a question about JSON."""
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return ", ".join(f"{name} {one}" for name, one in value.items()) if isinstance(value, dict) else text


__all__ = ["Entry", "Message", "Tool", "called", "entries", "instruction", "offered", "text_of"]
