"""A model that calls a server tool as often as the last message asks, and the profile that has the tool."""

import json
import re
from collections.abc import AsyncIterator

from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from benchmarks.text import ANSWER_CHARACTERS, words
from profiles import Profile

CALLING = "calling"
"""The model string, on a worker of the benchmarks."""

PROFILE = "fetching"
MAX_STEPS = 1000
FETCHING = {"profile": PROFILE, "config": {"model": CALLING}}
"""What a message says to be answered by it."""

WITH_TOOL = {"OUTLAST_PROFILES": "benchmarks.calling", "OUTLAST_MAX_STEPS": str(MAX_STEPS)}
"""The settings of a worker and an api that take such messages."""

_ASKED = re.compile(r"\A(\d+) calls of (\d+) characters, (\d+) at once")


def asks(calls: int, characters: int, at_once: int) -> str:
    """A message that makes the model call the tool so often, so many calls in one response, each of which returns so many characters."""
    return f"{calls} calls of {characters} characters, {at_once} at once"


def fetch(characters: int) -> str:
    """A text."""
    return words(characters)


async def _streamed(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    prompt, returned = _since_prompt(messages)
    asked = _ASKED.match(prompt)
    if asked is None or returned >= int(asked[1]):
        yield words(ANSWER_CHARACTERS)
        return
    arguments = json.dumps({"characters": int(asked[2])})
    yield {number: DeltaToolCall("fetch", arguments) for number in range(min(int(asked[3]), int(asked[1]) - returned))}


def _since_prompt(messages: list[ModelMessage]) -> tuple[str, int]:
    """The last prompt, and how many results came after it."""
    returned = 0
    for message in reversed(messages):
        for part in message.parts if isinstance(message, ModelRequest) else ():
            if isinstance(part, UserPromptPart) and isinstance(part.content, str):
                return part.content, returned
            returned += isinstance(part, ToolReturnPart)
    return "", returned


def calling_model() -> FunctionModel:
    """Does as the last message says."""
    return FunctionModel(stream_function=_streamed, model_name=CALLING)


profile = Profile(PROFILE, "You fetch what you are asked for.", tools=[fetch], max_steps=MAX_STEPS)
