"""The `demo` model: scripted, offline and deterministic. It shows streaming, thinking, server tools and host actions."""

import asyncio
import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, ModelResponsePart, TextPart, ThinkingPart, ToolCallPart
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.settings import ModelSettings

from activities.llm.script import answer_to, user_texts

PIECE_SECONDS = 0.01
_FIRST_CALL = 100
"""Thinking and calls share one index space."""

_CHARACTERS_PER_TOKEN = 4


class DemoModel(FunctionModel):
    """Answers as script.py says, streamed a word at a time, with a finish reason and plausible usage."""

    def __init__(self, piece_seconds: float = PIECE_SECONDS) -> None:
        super().__init__(stream_function=self._streamed, model_name="demo")
        self._piece_seconds = piece_seconds

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        async with super().request_stream(messages, model_settings, model_request_parameters, run_context) as stream:
            stream.finish_reason = "stop"
            stream.usage.input_tokens = _input_tokens(messages, model_request_parameters)
            yield stream

    async def _streamed(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        answer = answer_to(messages, {tool.name: tool.parameters_json_schema for tool in info.function_tools})
        for word in _words(answer.thinking):
            yield {0: DeltaThinkingPart(content=word)}
            await asyncio.sleep(self._piece_seconds)
        for word in _words(answer.text):
            yield word
            await asyncio.sleep(self._piece_seconds)
        for position, (name, arguments) in enumerate(answer.calls):
            half = len(arguments) // 2
            index = _FIRST_CALL + position
            yield {index: DeltaToolCall(name, arguments[:half], tool_call_id=_call_id(messages, position))}
            await asyncio.sleep(self._piece_seconds)
            yield {index: DeltaToolCall(json_args=arguments[half:])}


def _words(text: str) -> list[str]:
    return re.findall(r"\s*\S+\s*", text)


def _call_id(messages: Sequence[ModelMessage], position: int) -> str:
    """The same conversation gets the same ids; another one gets others."""
    said = "\n".join(user_texts(messages))
    responses = sum(isinstance(message, ModelResponse) for message in messages)
    return f"demo_{hashlib.sha256(f'{responses}/{said}'.encode()).hexdigest()[:12]}_{position}"


def _input_tokens(messages: Sequence[ModelMessage], parameters: ModelRequestParameters) -> int:
    characters = sum(_length(part) for message in messages for part in message.parts)
    characters += sum(len(part.content) for part in parameters.instruction_parts or ())
    return characters // _CHARACTERS_PER_TOKEN + len(messages) * 4


def _length(part: ModelResponsePart | Any) -> int:
    if isinstance(part, ToolCallPart):
        return len(part.tool_name) + len(part.args_as_json_str())
    if isinstance(part, TextPart | ThinkingPart):
        return len(part.content)
    return len(str(getattr(part, "content", "")))
