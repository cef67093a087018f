"""One streamed model request: pieces and complete calls while it runs, one clean response at its end, one clean partial if it is cut."""

import json
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from pydantic_ai.exceptions import ModelConnectionError
from pydantic_ai.messages import (
    InstructionPart,
    ModelMessage,
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.instrumented import InstrumentationSettings, instrument_model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from activities.llm.models import request_settings
from activities.llm.prepare import prepared
from activities.llm.text import Pieces, well_formed

_log = logging.getLogger(__name__)

PieceKind = Literal["text", "thinking"]


class Sink(Protocol):
    """Who watches a response arrive."""

    async def piece(self, index: int, kind: PieceKind, text: str) -> None:
        """More text. `index` is the place in the finished response's parts of the part that it belongs to; display-ready, never empty."""

    async def calls(self, parts: list[ToolCallPart]) -> None:
        """Calls, complete and in order, after which text goes on. Calls that end a response are not reported: the response has them."""


@dataclass(eq=False)
class _Run:
    """A part of the response as it arrived. The library puts text that follows a call into the text part before it; here it is a run of its own."""

    part: int
    kind: Literal["text", "thinking", "call", "other"]
    pieces: Pieces = field(default_factory=Pieces)
    texts: list[str] = field(default_factory=list)

    @property
    def raw(self) -> str:
        return "".join(self.texts)


class ModelStream:
    """One request to one model, traced as `instrument` says. Run it once; read `partial` if that raised.

    `settled`: how much of the history's beginning is known to be sent as it is (prepare.py); after the run, of this history.
    """

    def __init__(
        self,
        model: Model,
        history: Sequence[ModelMessage],
        *,
        instructions: Sequence[InstructionPart] = (),
        tools: Sequence[ToolDefinition] = (),
        settings: ModelSettings | None = None,
        requires_end: bool = True,
        settled: int = 0,
        instrument: InstrumentationSettings | None = None,
    ) -> None:
        self._model = model
        self._history = history
        self._parameters = ModelRequestParameters(function_tools=list(tools), instruction_parts=list(instructions))
        self._settings = request_settings(model) if settings is None else settings
        self._requires_end = requires_end
        self.settled = settled
        self._instrument = instrument
        self._stream: StreamedResponse | None = None
        self._runs: list[_Run] = []
        self._delivered = 0

    async def run(self, sink: Sink) -> ModelResponse:
        """Sends the request and reports what comes to `sink`. Returns the response, its cost set where the price is known.

        Raises what pydantic-ai raises (activities/failures.py says what it means), also ModelConnectionError for a stream that
        ended without saying so.
        """
        messages, self.settled = prepared(self._model, self._history, self._parameters, self.settled)
        # Not by the library's `direct`, which looks at every message for what `prepared` has seen to.
        model = instrument_model(self._model, self._instrument or False)
        async with model.request_stream(messages, self._settings, self._parameters) as stream:
            self._stream = stream
            async for event in stream:
                if isinstance(event, PartStartEvent):
                    await self._started(event.index, event.part, sink)
                elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta | ThinkingPartDelta):
                    await self._more(event.index, event.delta.content_delta or "", sink)
        response = stream.get()
        if not _ended(response, self._requires_end):
            raise ModelConnectionError(self._model.model_name, "the stream ended before the answer did", phase="read")
        await self._finish(sink)
        return _priced(replace(response, parts=self._parts(response)))

    @property
    def most_tokens(self) -> int | None:
        """How many tokens the answer was allowed, where a budget said so."""
        return self._settings.get("max_tokens")

    @property
    def partial(self) -> ModelResponse | None:
        """What a cut request had said, fit to be stored and sent back: text only. None if there was none.

        Unsigned thinking, half-written calls and a provider's ids of a response that was never finished are left out: sent
        back they would be refused or misread.
        """
        if self._stream is None:
            return None
        parts = [TextPart(well_formed(run.raw)) for run in self._runs if run.kind == "text" and run.texts]
        if not parts:
            return None
        response = self._stream.get()
        return _priced(
            replace(response, parts=parts, state="interrupted", finish_reason=None, provider_response_id=None, provider_details=None)
        )

    async def _started(self, index: int, part: ModelResponsePart, sink: Sink) -> None:
        kind = _kind(part)
        known = self._newest(index)
        if known is None:
            self._runs.append(_Run(index, kind))
        elif known.kind != kind or not _content(part).startswith(known.raw):
            _log.warning("a model replaced part %d of its answer after it was shown", index)
            known.kind, known.texts = kind, []
        await self._more(index, _content(part)[len(known.raw) if known else 0 :], sink)

    async def _more(self, index: int, text: str, sink: Sink) -> None:
        run = self._newest(index)
        if not text or run is None or run.kind not in ("text", "thinking"):
            return
        if run.kind == "text" and run is not self._runs[-1]:
            run = _Run(index, "text")
            self._runs.append(run)
        await self._deliver_calls(self._runs.index(run), sink)
        run.texts.append(text)
        await self._show(run, run.pieces(text), sink)

    async def _show(self, run: _Run, text: str, sink: Sink) -> None:
        if text:
            await sink.piece(self._runs.index(run), "text" if run.kind == "text" else "thinking", text)

    async def _deliver_calls(self, before: int, sink: Sink) -> None:
        """Reports the calls before a run that begins, up to the first whose arguments aren't complete yet."""
        waiting = [run for run in self._runs[self._delivered : before] if run.kind == "call"]
        if not waiting or self._stream is None:
            return
        parts = self._by_index(self._stream.get())
        ready: list[ToolCallPart] = []
        for run in waiting:
            part = parts[run.part]
            if not isinstance(part, ToolCallPart) or not _complete(part):
                break
            ready.append(_clean_call(part))
            self._delivered = self._runs.index(run) + 1
        if ready:
            await sink.calls(ready)

    async def _finish(self, sink: Sink) -> None:
        for run in self._runs:
            if run.kind in ("text", "thinking"):
                await self._show(run, run.pieces.rest(), sink)

    def _newest(self, index: int) -> _Run | None:
        return next((run for run in reversed(self._runs) if run.part == index), None)

    def _by_index(self, response: ModelResponse) -> dict[int, ModelResponsePart]:
        """The library's indices count parts that have not started; its list leaves them out."""
        return dict(zip(sorted({run.part for run in self._runs}), response.parts, strict=True))

    def _parts(self, response: ModelResponse) -> list[ModelResponsePart]:
        """The response's parts in the order in which they arrived, texts around calls apart."""
        by_index = self._by_index(response)
        return [_clean(by_index[run.part], run.raw) for run in self._runs]


def _ended(response: ModelResponse, requires_end: bool) -> bool:
    """A connection that is closed in the middle of an answer looks like its end; only the provider's own word for it counts.

    Scripted models (no provider name, or `test`) have no connection.
    """
    if response.state != "complete" or not requires_end:
        return response.state == "complete"
    details = response.provider_details or {}
    return "finish_reason" in details or "refusal" in details or response.provider_name in (None, "test")


def _priced(response: ModelResponse) -> ModelResponse:
    with suppress(LookupError, ValueError, AssertionError):
        response.usage.cost = response.cost().total_price
    return response


def _kind(part: ModelResponsePart) -> Literal["text", "thinking", "call", "other"]:
    match part:
        case TextPart():
            return "text"
        case ThinkingPart():
            return "thinking"
        case ToolCallPart():
            return "call"
        case _:
            return "other"


def _content(part: ModelResponsePart) -> str:
    return part.content if isinstance(part, TextPart | ThinkingPart) else ""


def _complete(part: ToolCallPart) -> bool:
    """True for whole arguments. No beginning of a JSON object is itself one."""
    if not isinstance(part.args, str):
        return True
    try:
        json.loads(part.args or "{}")
    except ValueError:
        return False
    return True


def _clean(part: ModelResponsePart, raw: str) -> ModelResponsePart:
    match part:
        case TextPart():
            text = well_formed(raw)
            return part if text == part.content else replace(part, content=text, id=None, provider_details=None)
        case ThinkingPart():
            text = well_formed(part.content)
            return part if text == part.content else replace(part, content=text, id=None, signature=None)
        case ToolCallPart():
            return _clean_call(part)
        case _:
            return part


def _clean_call(part: ToolCallPart) -> ToolCallPart:
    args: Any = well_formed(part.args) if isinstance(part.args, str) else part.args
    return replace(part, args=args, tool_name=well_formed(part.tool_name))
