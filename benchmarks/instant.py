"""A model that takes no time, so that what is measured is everything else. Every subject of a run answers with it."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters, StreamedResponse
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.settings import ModelSettings

from benchmarks.text import ANSWER_CHARACTERS, words

INSTANT = "instant"
"""The model string of the instant model, for OUTLAST_MODEL on a worker of the benchmarks."""

PIECES = 4
_PIECES_ASKED = re.compile(r"\A(\d+) pieces:")


def in_pieces(pieces: int, mark: str) -> str:
    """A message that asks the instant model to stream its answer in so many pieces."""
    return words(ANSWER_CHARACTERS, f"{pieces} pieces: {mark} ")


def _pieces_asked(messages: Sequence[ModelMessage]) -> int:
    last = messages[-1]
    for part in last.parts if isinstance(last, ModelRequest) else ():
        if isinstance(part, UserPromptPart) and isinstance(part.content, str) and (asked := _PIECES_ASKED.match(part.content)):
            return int(asked[1])
    return PIECES


async def _streamed(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
    answer, pieces = words(ANSWER_CHARACTERS), _pieces_asked(messages)
    size = max(1, len(answer) // pieces)
    for start in range(0, len(answer), size):
        yield answer[start : start + size]


def _whole(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(words(ANSWER_CHARACTERS))])


class _Forgetful(FunctionModel):
    """Looks at the last message only. The library's own counts the tokens of the whole conversation, which would be time that the model takes."""

    async def request(
        self, messages: list[ModelMessage], model_settings: ModelSettings | None, model_request_parameters: ModelRequestParameters
    ) -> ModelResponse:
        return await super().request(messages[-1:], model_settings, model_request_parameters)

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncIterator[StreamedResponse]:
        async with super().request_stream(messages[-1:], model_settings, model_request_parameters, run_context) as response:
            yield response


def instant_model() -> FunctionModel:
    """Answers 400 characters at once, streamed or whole."""
    return _Forgetful(_whole, stream_function=_streamed, model_name=INSTANT)
