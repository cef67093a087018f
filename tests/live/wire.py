"""Answers as OpenAI's chat completions put them on the wire."""

import json
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any

from tests.live.model import NAME, Token

Deltas = AsyncGenerator[tuple["Call | None", str], None]


@dataclass(frozen=True)
class Call:
    """A tool call. Its arguments follow in pieces."""

    index: int
    id: str
    name: str


@dataclass
class Answer:
    """A request, and what is known of its answer. Seconds count from when the model took it up."""

    request: Mapping[str, Any]
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    created: int = field(default_factory=lambda: int(time.time()))
    prompt_tokens: int = 0
    tokens: int = 0
    first_seconds: float = 0.0
    seconds: float = 0.0
    end: str = ""
    calls: int = 0

    def took(self, token: Token, seconds: float) -> None:
        """One more token, so long after the beginning."""
        self.first_seconds = self.first_seconds or seconds
        self.seconds = seconds
        self.end = token.end
        self.tokens += not token.end

    @property
    def finish_reason(self) -> str:
        return "tool_calls" if self.calls and self.end == "stop" else self.end

    @property
    def usage(self) -> dict[str, int]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.tokens,
            "total_tokens": self.prompt_tokens + self.tokens,
        }

    def record(self) -> dict[str, Any]:
        """For `GET /requests`. `end` is empty for an answer that is under way, or whose client left."""
        return {
            "request": self.request,
            "usage": self.usage,
            "first_seconds": self.first_seconds,
            "seconds": self.seconds,
            "end": self.end and self.finish_reason,
        }


class Wire:
    """One answer, streamed or whole."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    async def stream(self, deltas: Deltas) -> AsyncIterator[str]:
        """Server-sent events: the deltas, the reason of the end, the usage if it was asked for, `[DONE]`."""
        yield self._chunk({"role": "assistant", "content": ""})
        async with aclosing(deltas):
            async for call, text in deltas:
                yield self._chunk({"content": text} if call is None else {"tool_calls": [self._call_piece(call, text)]})
        yield self._chunk({}, self._answer.finish_reason)
        if (self._answer.request.get("stream_options") or {}).get("include_usage"):
            yield _event(self._envelope("chat.completion.chunk", []) | {"usage": self._answer.usage})
        yield "data: [DONE]\n\n"

    async def whole(self, deltas: Deltas) -> dict[str, Any]:
        """The answer in one body."""
        texts: list[str] = []
        calls: dict[Call, str] = {}
        async for call, text in deltas:
            if call is None:
                texts.append(text)
            else:
                calls[call] = calls.get(call, "") + text
        made = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}
            for call, arguments in calls.items()
        ]
        message = {"role": "assistant", "content": "".join(texts) or None} | ({"tool_calls": made} if made else {})
        choice = {"index": 0, "message": message, "finish_reason": self._answer.finish_reason, "logprobs": None}
        return self._envelope("chat.completion", [choice]) | {"usage": self._answer.usage}

    def _call_piece(self, call: Call, text: str) -> dict[str, Any]:
        if text:
            return {"index": call.index, "function": {"arguments": text}}
        return {"index": call.index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}

    def _chunk(self, delta: Mapping[str, Any], finish_reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": None}
        return _event(self._envelope("chat.completion.chunk", [choice]))

    def _envelope(self, kind: str, choices: list[Any]) -> dict[str, Any]:
        return {"id": self._answer.id, "object": kind, "created": self._answer.created, "model": NAME, "choices": choices}


def _event(data: Mapping[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"
