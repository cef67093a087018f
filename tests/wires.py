"""The two wire formats that tests/provider.py speaks: what a behaviour looks like as server-sent events."""

import asyncio
import json
from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, Protocol


class Wire(Protocol):
    """One answer in one format. A float among the events is a pause in seconds, an event of asyncio one until it is set."""

    def events(self) -> Iterator[str | float | asyncio.Event]: ...
    def closing(self) -> Iterator[str]: ...
    def whole(self) -> dict[str, Any]: ...


def garbage() -> Iterator[str]:
    """A chunk that is no JSON."""
    yield "data: {not json\n\n"


def error() -> Iterator[str]:
    """An error object where a chunk should be."""
    yield _event({"error": {"message": "overloaded", "type": "server_error", "code": "server_error"}})


class Chat:
    """Chat completions."""

    def __init__(self, behaviour: dict[str, Any]) -> None:
        self._behaviour = behaviour
        self._steps = behaviour.get("stream", [])
        self._called = sum(len(step.get("calls", ())) for step in self._steps)

    def events(self) -> Iterator[str | float | asyncio.Event]:
        first = 0
        for step in self._steps:
            if "pause" in step:
                yield step["pause"]
            elif "calls" in step:
                yield from self._calls(step, first)
                first += len(step["calls"])
            else:
                yield self._delta({"content": step["text"]} if "text" in step else {"reasoning_content": step["thinking"]})

    def closing(self) -> Iterator[str]:
        if (finish := self._finish()) is not None:
            yield self._delta({}, finish)
        yield self._chunk([], _usage(self._behaviour, "prompt_tokens", "completion_tokens"))
        yield "data: [DONE]\n\n"

    def whole(self) -> dict[str, Any]:
        text = "".join(step.get("text", "") for step in self._steps)
        calls = [
            {"id": one["id"], "type": "function", "function": {"name": one["name"], "arguments": _arguments(one)}}
            for step in self._steps
            for one in step.get("calls", ())
        ]
        message = {"role": "assistant", "content": text or None} | ({"tool_calls": calls} if calls else {})
        choice = {"index": 0, "finish_reason": self._finish(), "message": message}
        usage = _usage(self._behaviour, "prompt_tokens", "completion_tokens")
        return {
            "id": "chat-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "scripted",
            "choices": [choice],
            "usage": usage,
        }

    def _finish(self) -> str | None:
        finish: str | None = self._behaviour.get("finish", "tool_calls" if self._called else "stop")
        return finish

    def _calls(self, step: dict[str, Any], first: int) -> Iterator[str]:
        pieces = [_cut(_arguments(one), step.get("chunks", 1)) for one in step["calls"]]
        for number, one in enumerate(step["calls"]):
            head = {"index": first + number, "id": one["id"], "type": "function", "function": {"name": one["name"], "arguments": ""}}
            yield self._delta({"tool_calls": [head]})
        for round_ in zip_longest(*pieces):
            for number, piece in enumerate(round_):
                if piece is not None:
                    yield self._delta({"tool_calls": [{"index": first + number, "function": {"arguments": piece}}]})

    def _delta(self, delta: dict[str, Any], finish: str | None = None) -> str:
        return self._chunk([{"index": 0, "delta": delta, "finish_reason": finish}])

    def _chunk(self, choices: list[Any], usage: dict[str, int] | None = None) -> str:
        chunk = {"id": "chat-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "scripted", "choices": choices}
        return _event(chunk | ({"usage": usage} if usage else {}))


class Responses:
    """OpenAI's responses. Texts that follow one another are one item, everything else has its own."""

    def __init__(self, behaviour: dict[str, Any]) -> None:
        self._behaviour = behaviour
        self._items: list[dict[str, Any]] = []
        self._number = 0

    def events(self) -> Iterator[str | float | asyncio.Event]:
        yield self._named("response.created", response=self._response("in_progress"))
        steps = self._behaviour.get("stream", [])
        for number, step in enumerate(steps):
            before, after = _first(reversed(steps[:number])), _first(iter(steps[number + 1 :]))
            if "pause" in step:
                yield step["pause"]
            elif "calls" in step:
                for one in step["calls"]:
                    yield from self._call(one, step.get("chunks", 1))
            elif "text" in step:
                yield from self._text(step["text"], begins="text" not in before, ends="text" not in after)
            else:
                yield from self._thinking(step["thinking"])

    def closing(self) -> Iterator[str]:
        yield self._named("response.completed", response=self._response("completed"))

    def whole(self) -> dict[str, Any]:
        for _ in self.events():
            pass
        return self._response("completed")

    def _text(self, text: str, *, begins: bool, ends: bool) -> Iterator[str]:
        if begins:
            item: dict[str, Any] = {
                "id": f"msg_{len(self._items)}",
                "type": "message",
                "role": "assistant",
                "status": "in_progress",
                "content": [],
            }
            self._items.append(item)
            yield self._named("response.output_item.added", output_index=self._last, item=dict(item))
            yield self._part("response.content_part.added", "")
        item = self._items[-1]
        item["content"] = [_output_text("".join(part["text"] for part in item["content"]) + text)]
        yield self._named(
            "response.output_text.delta", output_index=self._last, content_index=0, item_id=item["id"], delta=text, logprobs=[]
        )
        if ends:
            item["status"] = "completed"
            yield self._part("response.content_part.done", item["content"][0]["text"])
            yield self._named("response.output_item.done", output_index=self._last, item=item)

    def _part(self, name: str, text: str) -> str:
        return self._named(name, output_index=self._last, content_index=0, item_id=self._items[-1]["id"], part=_output_text(text))

    def _thinking(self, text: str) -> Iterator[str]:
        item: dict[str, Any] = {"id": f"rs_{len(self._items)}", "type": "reasoning", "summary": [], "encrypted_content": "sealed"}
        self._items.append(item)
        place = {"output_index": self._last, "item_id": item["id"], "summary_index": 0}
        yield self._named("response.output_item.added", output_index=self._last, item=dict(item))
        yield self._named("response.reasoning_summary_part.added", **place, part={"type": "summary_text", "text": ""})
        yield self._named("response.reasoning_summary_text.delta", **place, delta=text)
        item["summary"] = [{"type": "summary_text", "text": text}]
        yield self._named("response.output_item.done", output_index=self._last, item=item)

    def _call(self, one: dict[str, Any], chunks: int) -> Iterator[str]:
        item = {"id": f"fc_{len(self._items)}", "type": "function_call", "call_id": one["id"], "name": one["name"], "arguments": ""}
        self._items.append(item)
        yield self._named("response.output_item.added", output_index=self._last, item=dict(item))
        for piece in _cut(_arguments(one), chunks):
            yield self._named("response.function_call_arguments.delta", output_index=self._last, item_id=item["id"], delta=piece)
        item |= {"arguments": _arguments(one), "status": "completed"}
        yield self._named("response.output_item.done", output_index=self._last, item=item)

    @property
    def _last(self) -> int:
        return len(self._items) - 1

    def _response(self, status: str) -> dict[str, Any]:
        usage = _usage(self._behaviour, "input_tokens", "output_tokens")
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        return {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_700_000_000,
            "model": "scripted",
            "status": status,
            "output": self._items,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage | details if status == "completed" else None,
        }

    def _named(self, name: str, **data: Any) -> str:
        self._number += 1
        return f"event: {name}\n" + _event({"type": name, "sequence_number": self._number, **data})


def _first(steps: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """The nearest step that is no pause."""
    return next((step for step in steps if "pause" not in step), {})


def _event(data: dict[str, Any]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _output_text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _arguments(one: dict[str, Any]) -> str:
    return one["arguments"] if isinstance(one["arguments"], str) else json.dumps(one["arguments"])


def _cut(text: str, pieces: int) -> list[str]:
    size = max(1, -(-len(text) // pieces))
    return [text[start : start + size] for start in range(0, len(text), size)]


def _usage(behaviour: dict[str, Any], first: str, second: str) -> dict[str, int]:
    asked, answered = behaviour.get("usage", [12, 5])
    return {first: asked, second: answered, "total_tokens": asked + answered}
