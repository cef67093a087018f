"""Models that do as a test says: one behaviour a request, the last one repeats."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai.messages import ModelMessage, ModelRequest, ToolReturnPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from activities.llm.models import Models
from settings import Settings

Piece = Any
Behaviour = Callable[[], AsyncIterator[Piece]]


def says(*texts: str, thinking: str = "", pause: float = 0.0) -> Behaviour:
    """Thinking, then the texts, one piece each."""

    async def run() -> AsyncIterator[Piece]:
        if thinking:
            yield {0: DeltaThinkingPart(content=thinking)}
        for text in texts:
            if pause:
                await asyncio.sleep(pause)
            yield text

    return run


def calls(*wanted: tuple[str, str, Any], text: str = "") -> Behaviour:
    """Calls tools: (call id, tool name, arguments as a value or as JSON text)."""
    import json

    async def run() -> AsyncIterator[Piece]:
        if text:
            yield text
        yield {
            number: DeltaToolCall(name, arguments if isinstance(arguments, str) else json.dumps(arguments), tool_call_id=call_id)
            for number, (call_id, name, arguments) in enumerate(wanted, start=1)
        }

    return run


def raises(error: Exception, *texts: str) -> Behaviour:
    """Fails, after some text."""

    async def run() -> AsyncIterator[Piece]:
        for text in texts:
            yield text
        raise error

    return run


def hangs(*texts: str) -> Behaviour:
    """Says something and then nothing more."""

    async def run() -> AsyncIterator[Piece]:
        for text in texts:
            yield text
        await asyncio.Event().wait()
        yield ""

    return run


def waits(until: asyncio.Event, *texts: str) -> Behaviour:
    """Waits for an event in the middle of its texts."""

    async def run() -> AsyncIterator[Piece]:
        for number, text in enumerate(texts):
            if number == len(texts) - 1:
                await until.wait()
            yield text

    return run


@dataclass
class Script:
    """A model with a script. `requests` are the conversations that it was sent."""

    behaviours: list[Behaviour]
    requests: list[list[ModelMessage]] = field(default_factory=list)
    tools: list[list[str]] = field(default_factory=list)

    def model(self) -> Model:
        return FunctionModel(stream_function=self._stream, model_name="scripted")

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Piece]:
        number = len(self.requests)
        self.requests.append(list(messages))
        self.tools.append([tool.name for tool in info.function_tools])
        async for piece in self.behaviours[min(number, len(self.behaviours) - 1)]():
            yield piece

    def then(self, *behaviours: Behaviour) -> None:
        """What the next requests come to."""
        had = self.behaviours[: len(self.requests)]
        repeated = [had[-1]] * (len(self.requests) - len(had)) if had else []
        self.behaviours = [*had, *repeated, *behaviours]

    def results(self, request: int = -1) -> list[ToolReturnPart]:
        """The tool results of a request's last message."""
        last = self.requests[request][-1]
        assert isinstance(last, ModelRequest)
        return [part for part in last.parts if isinstance(part, ToolReturnPart)]


def script(*behaviours: Behaviour) -> Script:
    """A script with one behaviour a request."""
    return Script(list(behaviours))


class ScriptedModels(Models):
    """A worker's models, with scripts under their names."""

    def __init__(self, settings: Settings, scripts: dict[str, Script]) -> None:
        super().__init__(settings)
        self._scripts = {name: scripted.model() for name, scripted in scripts.items()}

    def of(self, name: str) -> Model:
        return self._scripts.get(name) or super().of(name)
