"""A model that says what time it is, piece by piece, so that a reader can tell how long each piece took to reach it; or calls a host tool."""

import asyncio
import re
import time
from collections.abc import AsyncIterator

from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

TIMED = "timed"
"""The model string, for OUTLAST_MODEL or a message's `config.model` on a worker of the benchmarks."""

HOST_TOOL = "open_page"
CALL = f"call {HOST_TOOL}"
HOST_CONTEXT = {"version": 1, "actions": [{"name": HOST_TOOL, "description": "Opens a page.", "parameters": {"type": "object"}}]}
_ASKED = re.compile(r"(\d+) pieces every (\d+) ms")
STAMP = re.compile(rb"<(\d{9,})>")


def pieces_every(pieces: int, milliseconds: int) -> str:
    """A message that asks for so many pieces, so far apart."""
    return f"{pieces} pieces every {milliseconds} ms"


def elapsed(stamp: bytes) -> float:
    """Milliseconds since a stamp was made: the clock is the machine's, not the process's."""
    return (time.monotonic_ns() - int(stamp)) / 1e6


def _last_prompt(messages: list[ModelMessage]) -> str:
    last = messages[-1]
    for part in reversed(last.parts) if isinstance(last, ModelRequest) else ():  # a cancelled turn's prompt comes before
        if isinstance(part, UserPromptPart) and isinstance(part.content, str):
            return part.content
    return ""


async def _streamed(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
    prompt = _last_prompt(messages)
    if CALL in prompt:
        yield {0: DeltaToolCall(HOST_TOOL, '{"url": "u"}')}
        return
    asked = _ASKED.search(prompt)
    pieces, pause = (int(asked[1]), int(asked[2]) / 1000) if asked else (1, 0.0)
    for number in range(pieces):
        if number:
            await asyncio.sleep(pause)
        yield f"<{time.monotonic_ns()}>"


def timed_model() -> FunctionModel:
    """Does as the last message says."""
    return FunctionModel(stream_function=_streamed, model_name=TIMED)
