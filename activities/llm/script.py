"""What the `demo` model answers: a pure function of the conversation and of the tools that it is offered."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart

Schemas = Mapping[str, Mapping[str, Any]]
Call = tuple[str, str]
"""A tool's name and its arguments as JSON text."""

_HOST_BLOCK = re.compile(r"\A<host_context>.*?</host_context>\s*", re.S)
MOST_COUNTED = 5000
_LONG_SENTENCES = 150
_NUMBER_WORDS = {"a": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "ten": 10}


@dataclass(frozen=True)
class Answer:
    """One response: thinking, then text, then calls. An empty part is left out."""

    text: str
    thinking: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class _Wish:
    """A tool that the script asks for when the user's words match."""

    tool: str
    words: re.Pattern[str]
    arguments: Callable[[str], dict[str, Any]]
    announced: str


def user_texts(messages: Sequence[ModelMessage]) -> list[str]:
    """What the user said so far, one text a message, without the blocks in which the runtime says what the host shows."""
    prompts = [
        part for message in messages if isinstance(message, ModelRequest) for part in message.parts if isinstance(part, UserPromptPart)
    ]
    return [text for text in map(_said, prompts) if text]


def answer_to(messages: Sequence[ModelMessage], tools: Schemas) -> Answer:
    """The next response of the conversation, given the parameter schemas of the tools on offer."""
    last = messages[-1] if messages else None
    parts = list(last.parts) if isinstance(last, ModelRequest) else []
    if any(_said(part) for part in parts if isinstance(part, UserPromptPart)):
        return _to_user(user_texts(messages), tools)
    results = [part for part in parts if isinstance(part, ToolReturnPart)]
    if results:
        return Answer(" ".join(_about(result) for result in results))
    return Answer("There is nothing new to answer.")


def _to_user(said: list[str], tools: Schemas) -> Answer:
    text = said[-1] if said else ""
    thinking = f"The message has {len(text.split())} words. I look for something that I can do." if _has(text, "think") else ""
    if calls := _named_calls(text, tools):
        return Answer("I call " + " and ".join(name for name, _ in calls) + ".", thinking, calls)
    wishes = _wishes(text)
    offered = [wish for wish in wishes if wish.tool in tools]
    if offered:
        calls = tuple((wish.tool, json.dumps(wish.arguments(text), ensure_ascii=False)) for wish in offered)
        return Answer(" ".join(wish.announced for wish in offered), thinking, calls)
    if (number := re.search(r"\bcount (?:up )?to (\d+)", text, re.I)) is not None:
        return Answer(" ".join(str(n) for n in range(1, min(int(number[1]), MOST_COUNTED) + 1)) + ".", thinking)
    if _has(text, "long"):
        return Answer(
            " ".join(f"This is sentence {n} of {_LONG_SENTENCES} of a long answer." for n in range(1, _LONG_SENTENCES + 1)), thinking
        )
    return Answer(_friendly(said, wishes, tools), thinking)


def _wishes(text: str) -> list[_Wish]:
    """In the order in which the text names them."""
    found = [(match.start(), wish) for wish in _WISHES if (match := wish.words.search(text)) is not None]
    return [wish for _, wish in sorted(found, key=lambda pair: pair[0])]


def _friendly(said: list[str], missing: list[_Wish], tools: Schemas) -> str:
    texts = [
        f"Hello! You have sent {len(said)} message{'' if len(said) == 1 else 's'} so far, the last one with {len(said[-1] if said else '')} characters."
    ]
    texts += [f"This profile has no tool {wish.tool}, so I can't do that here; the profile demo has it." for wish in missing]
    can = [hint for tool, hint in _HINTS.items() if tool in tools]
    own = [name for name in tools if name not in _HINTS]
    can += [f"call {name}" for name in own]
    texts.append(
        "I am a scripted model that works offline. Ask me to " + ", to ".join([*can, "think", "count to 20", "give a long answer"]) + "."
    )
    return " ".join(texts)


def _named_calls(text: str, tools: Schemas) -> tuple[Call, ...]:
    """Tools that the user names, with the JSON object that follows the name, or with made-up arguments that fit the schema."""
    calls = []
    for found in re.finditer(r"[A-Za-z0-9_-]+", text):
        name = found.group()
        if name in tools and ("_" in name or re.search(r"\b(call|use|run)\s+$", text[: found.start()], re.I)):
            calls.append((name, _object_after(text[found.end() :]) or json.dumps(sample(tools[name]))))
    return tuple(calls)


def _object_after(text: str) -> str | None:
    start = re.match(r"\W*?(?=\{)", text)
    if start is None:
        return None
    try:
        _, end = json.JSONDecoder().raw_decode(text[start.end() :])
    except ValueError:
        return None
    return text[start.end() : start.end() + end]


def sample(schema: Mapping[str, Any]) -> Any:
    """A value that fits simple schemas: what is required, with the first choice or the least value."""
    if "const" in schema or "default" in schema:
        return schema.get("const", schema.get("default"))
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        members = schema.get("properties", {})
        return {name: sample(members.get(name, {})) for name in schema.get("required", ())}
    if kind == "array":
        return [sample(schema.get("items", {})) for _ in range(schema.get("minItems", 0))]
    if kind in ("integer", "number"):
        return schema.get("minimum", 1)
    return {"boolean": True, "null": None}.get(str(kind), "demo" + "." * max(0, schema.get("minLength", 0) - 4))


def _about(result: ToolReturnPart) -> str:
    content = _text(result)
    if result.outcome == "success":
        return f"{result.tool_name} answered: {content}."
    if result.outcome == "denied":
        return f"{result.tool_name} was denied, so it was not done. ({content})"
    if result.outcome == "interrupted":
        return f"I don't know what became of {result.tool_name}. ({content})"
    return f"{result.tool_name} did not work: {content}."


def _said(part: UserPromptPart) -> str:
    return _HOST_BLOCK.sub("", _text(part)).strip()


def _text(part: UserPromptPart | ToolReturnPart) -> str:
    if isinstance(part, ToolReturnPart):
        return part.content if isinstance(part.content, str) else part.model_response_str()
    if isinstance(part.content, str):
        return part.content
    return " ".join(item for item in part.content if isinstance(item, str))


def _has(text: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", text, re.I) is not None


def _dice(text: str) -> dict[str, Any]:
    sides = re.search(r"\bd(\d{1,4})\b|(\d{1,4})[- ]sided", text, re.I) or re.search(r"\b\d{1,3}d(\d{1,4})\b()", text, re.I)
    count = re.search(rf"\b(\d{{1,3}}|{'|'.join(_NUMBER_WORDS)})\s*(?:d\d|(?:\d+[- ]sided\s+)?(?:dice|die)\b)", text, re.I)
    number = count[1].lower() if count else "1"
    return {"sides": int(sides[1] or sides[2]) if sides else 6, "count": _NUMBER_WORDS.get(number) or int(number)}


def _url(text: str) -> str:
    if (address := re.search(r"https?://[^\s\"'<>]+[^\s\"'<>.,;!?)]|(?<!\S)/[\w/.-]*\w", text)) is not None:
        return address.group()
    named = re.search(r"\b(?:open|go to)\s+(?:up\s+)?(?:(?:the|a|an|my|me)\s+)*(\w+)", text, re.I)
    word = named[1].lower() if named else ""
    return "/" if word in ("", "something", "page", "it", "and") else f"/{word}"


def _question(text: str) -> str:
    about = re.search(r"\bask\s+(?:me|the user|him|her|them)?\s*(?:for|about|what|whether|if)?\s*([^.!?]*)", text, re.I)
    words = re.split(r"\band\b", about[1])[0].strip(" ,:;") if about else ""
    return f"What can you tell me about {words}?" if words and words.lower() != "something" else "What would you like me to know?"


_WISHES = (
    _Wish("current_time", re.compile(r"\b(time|clock|date|today)\b", re.I), lambda text: {}, "Let me look at the clock."),
    _Wish("roll_dice", re.compile(r"\b(dice|die|roll|\d*d\d+)\b", re.I), _dice, "Let me roll."),
    _Wish("open_page", re.compile(r"\b(open|go to)\b", re.I), lambda text: {"url": _url(text)}, "I ask your application to open that."),
    _Wish("ask_user", re.compile(r"\bask\b", re.I), lambda text: {"question": _question(text)}, "I have a question for you."),
)
_HINTS = {
    "current_time": "tell the time",
    "roll_dice": "roll 2 dice",
    "open_page": "open the orders page",
    "ask_user": "ask you something",
}
