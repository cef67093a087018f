"""A model's answer in pieces: order, complete calls, a clean response and a clean partial. Models are scripted functions."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.exceptions import ModelConnectionError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel

from activities.llm.stream import ModelStream
from activities.llm.text import shown
from activities.llm.translate import content_of, display, dump, load, user_request
from tests.sinks import Watcher

HELLO = [user_request("hello", None, "2026-01-02T03:04:05+00:00")]


def scripted(pieces: Sequence[Any], seen: list[list[ModelMessage]] | None = None) -> FunctionModel:
    """Yields the pieces; an exception among them is raised, a float is slept."""

    async def script(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        if seen is not None:
            seen.append(messages)
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            if isinstance(piece, float):
                await asyncio.sleep(piece)
            else:
                yield piece

    return FunctionModel(stream_function=script, model_name="scripted")


async def answered(pieces: Sequence[Any]) -> tuple[ModelResponse, Watcher]:
    watcher = Watcher()
    return await ModelStream(scripted(pieces), HELLO).run(watcher), watcher


async def test_r77_order_is_kept_and_calls_are_complete() -> None:
    response, watcher = await answered(
        [
            {0: DeltaThinkingPart(content="hm")},
            "be",
            "fore",
            {1: DeltaToolCall("dice", '{"sid', tool_call_id="c1"), 2: DeltaToolCall("open", '{"u', tool_call_id="c2")},
            {1: DeltaToolCall(json_args='es":6}'), 2: DeltaToolCall(json_args='rl":"/"}')},
            "af",
            "ter",
        ]
    )
    assert watcher.joined() == [
        (0, "thinking", "hm"),
        (1, "text", "before"),
        ("calls", [("dice", {"sides": 6}), ("open", {"url": "/"})]),
        (4, "text", "after"),
    ]
    assert [(one.kind, one.index, one.text or one.calls) for one in display(response)] == [
        ("thinking", 0, "hm"),
        ("text", 1, "before"),
        ("tool_group", 2, ("c1", "c2")),
        ("text", 4, "after"),
    ]
    assert dump(load([dump(response)])[0]) == dump(response)


async def test_r77_calls_that_end_a_response_are_left_to_it() -> None:
    response, watcher = await answered(["x", {1: DeltaToolCall("a", "{}", tool_call_id="c1")}])
    assert watcher.seen == [(0, "text", "x")]
    assert [call.tool_call_id for call in response.tool_calls] == ["c1"]


async def test_r77_a_call_is_not_reported_before_its_arguments_are_complete() -> None:
    half, rest = DeltaToolCall("a", '{"n":', tool_call_id="c1"), DeltaToolCall(json_args="1}")
    response, watcher = await answered([{1: half}, "early", {1: rest}, "late"])
    assert watcher.seen[0] == (1, "text", "early")
    assert response.tool_calls[0].args == '{"n":1}'
    assert content_of(response) == "earlylate"


@given(st.lists(st.sampled_from(["a", "é", "\ud83d", "\ude00", "\x00", "call", "think"]), min_size=1, max_size=12))
async def test_r77_what_was_shown_is_what_is_stored(script: list[str]) -> None:
    pieces: list[Any] = [{}]
    for number, one in enumerate(script):
        call = {100 + number: DeltaToolCall("t", "{}", tool_call_id=f"c{number}")}
        thought = {100 + number: DeltaThinkingPart(content="hm")}
        pieces.append(call if one == "call" else thought if one == "think" else one)
    response, watcher = await answered(pieces)
    told: dict[int, str] = {}
    for index, _, text in (piece for piece in watcher.seen if len(piece) == 3):
        told[index] = told.get(index, "") + text
    assert told == {one.index: one.text for one in display(response) if one.kind != "tool_group"}
    assert dump(load([dump(response)])[0]) == dump(response)


async def test_r91_a_cancelled_answer_leaves_its_text_and_no_half_call() -> None:
    call = {1: DeltaToolCall("a", '{"n":', tool_call_id="c1")}
    watcher = Watcher()
    stream = ModelStream(scripted([{0: DeltaThinkingPart(content="hm")}, "par", "tial\ud83d", call, 60.0]), HELLO)
    task = asyncio.create_task(stream.run(watcher))
    while len(watcher.seen) < 3:
        await asyncio.sleep(0)
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stream.partial is not None
    assert [(type(part), part.content) for part in stream.partial.parts if isinstance(part, TextPart)] == [(TextPart, "partial\ufffd")]
    assert (len(stream.partial.parts), stream.partial.state) == (1, "interrupted")
    assert dump(load([dump(stream.partial)])[0]) == dump(stream.partial)


async def test_r89_a_failure_in_the_middle_keeps_what_was_said() -> None:
    stream = ModelStream(scripted(["said", ModelConnectionError("scripted", "gone")]), HELLO)
    with pytest.raises(ModelConnectionError):
        await stream.run(Watcher())
    assert stream.partial is not None
    assert content_of(stream.partial) == "said"


async def test_r92_nothing_said_is_no_partial() -> None:
    stream = ModelStream(scripted([ModelConnectionError("scripted", "gone")]), HELLO)
    assert stream.partial is None
    with pytest.raises(ModelConnectionError):
        await stream.run(Watcher())
    assert stream.partial is None


async def test_r77_nul_is_stored_and_shown_as_a_replacement() -> None:
    response, watcher = await answered(["a\x00b"])
    assert watcher.seen == [(0, "text", shown("a\x00b"))]
    assert response.parts[0] == TextPart("a\x00b")


async def test_l18_a_call_without_a_result_is_answered_and_reported(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[list[ModelMessage]] = []
    history: list[ModelMessage] = [*HELLO, ModelResponse([ToolCallPart("dice", "{}", "c9")]), *HELLO]
    with caplog.at_level(logging.ERROR):
        await ModelStream(scripted(["ok"], seen), history).run(Watcher())
    assert "c9" in caplog.text
    request = seen[0][-1]
    assert isinstance(request, ModelRequest)
    assert [part.part_kind for part in request.parts] == ["tool-return", "user-prompt"]
