"""architecture.md, Components: the `demo` model answers offline, and the same each time."""

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ThinkingPart

from activities.llm.demo import DemoModel
from activities.llm.script import sample
from activities.llm.stream import ModelStream
from activities.llm.tools import Toolbox
from activities.llm.translate import CallOutcome, RecordedCall, content_of, tool_returns, user_request
from profiles import Profile
from profiles.default import profile as default
from profiles.demo import profile as demo
from tests.sinks import Watcher

AT = "2026-01-02T03:04:05+00:00"


async def answer(history: Sequence[ModelMessage], profile: Profile = demo, actions: Sequence[dict[str, Any]] = ()) -> ModelResponse:
    tools = await Toolbox(profile, actions).definitions()
    return await ModelStream(DemoModel(piece_seconds=0), history, tools=tools).run(Watcher())


def said(*texts: str) -> list[ModelMessage]:
    history: list[ModelMessage] = []
    for text in texts:
        history += [user_request(text, {"view": {"name": "open dice ask time"}}, AT), ModelResponse([TextPart("ok")])]
    return history[:-1]


def calls(response: ModelResponse) -> list[tuple[str, Any]]:
    return [(call.tool_name, json.loads(call.args_as_json_str())) for call in response.tool_calls]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What time is it?", [("current_time", {})]),
        ("roll a die", [("roll_dice", {"sides": 6, "count": 1})]),
        ("Please roll 3d20", [("roll_dice", {"sides": 20, "count": 3})]),
        ("two 8-sided dice", [("roll_dice", {"sides": 8, "count": 2})]),
        ("Open the orders page", [("open_page", {"url": "/orders"})]),
        ("open https://example.org/a?b=1.", [("open_page", {"url": "https://example.org/a?b=1"})]),
        ("ask me about my name", [("ask_user", {"question": "What can you tell me about my name?"})]),
        (
            "open /x and ask me something",
            [("open_page", {"url": "/x"}), ("ask_user", {"question": "What would you like me to know?"})],
        ),
        ("roll dice and open /y", [("roll_dice", {"sides": 6, "count": 1}), ("open_page", {"url": "/y"})]),
        ('call open_page {"url": 7}', [("open_page", {"url": 7})]),
        ("roll_dice, please", [("roll_dice", {})]),
        ("hello", []),
    ],
)
async def test_demo_calls_what_the_words_ask_for(text: str, expected: list[tuple[str, Any]]) -> None:
    assert calls(await answer(said(text))) == expected


async def test_demo_arguments_fit_their_schemas() -> None:
    toolbox = Toolbox(demo)
    for text in ("roll 2 dice", "time?", "open", "ask"):
        for call in (await answer(said(text))).tool_calls:
            assert (await toolbox.check(call)).problem is None


@pytest.mark.parametrize(
    ("outcome", "status", "words"),
    [
        ("success", None, "open_page answered: shown"),
        ("failed", "failed", "did not work"),
        ("denied", "denied", "was denied"),
        ("interrupted", "unknown", "I don't know what became of open_page"),
    ],
)
async def test_demo_says_what_became_of_a_call(outcome: CallOutcome, status: str | None, words: str) -> None:
    asked = await answer(said("open /x"))
    result = RecordedCall(asked.tool_calls[0].tool_call_id, "open_page", '"shown"', outcome, status)
    response = await answer([*said("open /x"), asked, tool_returns([result], AT, host_context={"view": {"name": "x"}})])
    assert words in content_of(response)
    assert response.tool_calls == []


async def test_demo_counts_the_users_messages_and_says_what_can_be_tried() -> None:
    text = content_of(await answer(said("one", "two", "three")))
    assert "sent 3 messages" in text
    assert "roll 2 dice" in text


async def test_demo_answers_without_tools() -> None:
    text = content_of(await answer(said("roll a die"), default))
    assert "no tool roll_dice" in text
    assert "the profile demo has it" in text


async def test_r129_demo_calls_a_declared_action_by_name() -> None:
    action = {"name": "file_form", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
    assert calls(await answer(said("now file_form"), default, [action])) == [("file_form", {"n": 1})]


async def test_demo_thinks_counts_and_talks_at_length() -> None:
    thinking = (await answer(said("think about this"))).parts[0]
    assert isinstance(thinking, ThinkingPart)
    assert content_of(await answer(said("count to 12"))) == "1 2 3 4 5 6 7 8 9 10 11 12."
    assert len(content_of(await answer(said("a long answer")))) > 4000


async def test_demo_is_the_same_each_time_and_reports_usage() -> None:
    first, second = await answer(said("roll a die")), await answer(said("roll a die"))
    assert first.parts == second.parts
    assert (first.usage, first.finish_reason) == (second.usage, "stop")
    assert first.usage.input_tokens > 5
    assert first.usage.output_tokens > 5
    other = await answer(said("hello", "roll a die"))
    assert other.tool_calls[0].tool_call_id != first.tool_calls[0].tool_call_id


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"enum": ["x"]}, "b": {"type": "number", "minimum": 4}}, "required": ["a", "b"]},
        {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
        {"type": ["string", "null"], "minLength": 9},
        {"const": 5},
    ],
)
def test_demo_made_up_arguments_fit(schema: dict[str, Any]) -> None:
    jsonschema.validate(sample(schema), schema)
