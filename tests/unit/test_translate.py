"""sessions.md, Terms and Outcomes: what is stored, what the model reads of a call, what is displayed."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ThinkingPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.usage import RequestUsage

from activities.llm.translate import (
    CallOutcome,
    RecordedCall,
    content_of,
    display,
    dump,
    host_block,
    load,
    model_text,
    told_to_model,
    tool_returns,
    usage_of,
    user_request,
)
from workflows.contracts.errors import TurnFault

AT = "2026-03-04T05:06:07.000008+00:00"
CONTEXT = {"version": 1, "view": {"name": "Orders"}, "actions": [{"name": "file_form"}], "navigation": []}


def prompt(request: ModelRequest) -> str:
    part = request.parts[-1]
    assert isinstance(part, UserPromptPart)
    assert isinstance(part.content, str)
    return part.content


@pytest.mark.parametrize("context", [None, {}, CONTEXT])
def test_user_request_a_message_is_derived_again_byte_by_byte(context: dict[str, Any] | None) -> None:
    body = dump(user_request("hello", context, AT))
    assert body == dump(user_request("hello", context, AT))
    assert dump(load([body])[0]) == body
    assert "2026-03-04T05:06:07.000008Z" in body


def test_r129_declared_actions_are_tools_and_not_text() -> None:
    assert "Orders" in host_block(CONTEXT)
    assert "file_form" not in host_block(CONTEXT)
    assert host_block({"version": 1, "actions": [{"name": "x"}], "view": None}) == ""


@given(st.text(max_size=40))
def test_r129_nothing_that_a_host_shows_closes_its_block(text: str) -> None:
    block = host_block({"view": {"name": f"{text}</host_context>{text}</ host_context >"}})
    assert block.startswith("<host_context>")
    assert block.endswith("</host_context>")
    assert block.count("</host_context>") == 1


def test_user_request_the_users_words_follow_the_block_unchanged() -> None:
    said = prompt(user_request("<b>hi</b>\x00", CONTEXT, AT))
    assert said.endswith("</host_context>\n\n<b>hi</b>\x00")


@pytest.mark.parametrize(
    ("outcome", "status", "words"),
    [
        ("interrupted", "cancelled", "unknown"),
        ("interrupted", "superseded", "unknown"),
        ("interrupted", "unknown", "unknown"),
        ("interrupted", None, "unknown"),
        ("denied", "denied", "was not performed"),
        ("failed", "failed", "failed"),
    ],
)
def test_r95_the_model_is_told_what_is_known_of_a_call(outcome: CallOutcome, status: str | None, words: str) -> None:
    told = told_to_model(RecordedCall("c", "t", None, outcome, status))
    assert words in told
    if outcome == "interrupted":
        assert "not performed" not in told


def test_r117_a_failed_call_reaches_the_model_with_the_hosts_words() -> None:
    request = tool_returns([RecordedCall("c", "t", '{"code":7}', "failed", "failed")], AT)
    part = request.parts[0]
    assert isinstance(part, ToolReturnPart)
    assert (part.content, part.outcome, part.tool_call_id) == ('{"code":7}', "failed", "c")


def test_r127_results_stand_in_call_order_as_text() -> None:
    calls = [RecordedCall("b", "t", '{"kind":"binary","data":"AA==","media_type":"image/png"}'), RecordedCall("a", "t", '"text"')]
    request = tool_returns(calls, AT, host_context=CONTEXT)
    again = load([dump(request)])[0]
    results = [part for part in again.parts if isinstance(part, ToolReturnPart)]
    assert [part.tool_call_id for part in results] == ["b", "a"]
    assert [part.content for part in results] == ['{"kind":"binary","data":"AA==","media_type":"image/png"}', "text"]
    assert "Orders" in prompt(request)


def test_tool_returns_a_kept_text_wins_over_a_derived_one() -> None:
    part = tool_returns([RecordedCall("c", "t", '"now"', model_text="then")], AT).parts[0]
    assert isinstance(part, ToolReturnPart)
    assert part.content == "then"


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ('"plain"', "plain"),
        ("null", "null"),
        ("1.10000000000000000001", "1.10000000000000000001"),
        ('{"b":1,"a":"\\u00e4"}', '{"b":1,"a":"ä"}'),
        ('"a\\u0000b\\ud83d"', "a\ufffdb\ufffd"),
        ("9" * 5000, "9" * 5000),
        (None, ""),
    ],
)
def test_model_text_is_the_output_as_it_was_written(output: str | None, text: str) -> None:
    assert model_text(output) == text


def test_model_text_says_that_it_was_cut() -> None:
    text = model_text(json.dumps("x" * 2000), limit=1500)
    assert text.startswith("x" * 1500 + "\n")
    assert "1,500 of 2,000" in text


def test_load_a_message_of_another_release_ends_the_turn_with_its_place() -> None:
    good = dump(user_request("a", None, AT))
    with pytest.raises(TurnFault, match="message 1 ") as raised:
        load([good, '{"kind":"unheard of"}'])
    assert raised.value.error.type == "session_error"


RESPONSE = ModelResponse(
    parts=[
        ThinkingPart("hm"),
        TextPart("one\x00"),
        ToolCallPart("t", "{}", "c1"),
        TextPart(""),
        ToolCallPart("t", "{}", "c2"),
        TextPart("two"),
        ThinkingPart("", signature="s"),
        ToolCallPart("t", "{}", "c3"),
    ],
    usage=RequestUsage(input_tokens=7, output_tokens=3),
)


def test_r77_display_keeps_the_order_and_groups_calls() -> None:
    assert [(one.kind, one.index, one.text, one.calls) for one in display(RESPONSE)] == [
        ("thinking", 0, "hm", ()),
        ("text", 1, "one\ufffd", ()),
        ("tool_group", 2, "", ("c1", "c2")),
        ("text", 5, "two", ()),
        ("tool_group", 7, "", ("c3",)),
    ]
    assert content_of(RESPONSE) == "one\ufffdtwo"


def test_usage_of_counts_one_request_and_its_calls() -> None:
    usage = usage_of(RESPONSE)
    assert (usage.input_tokens, usage.output_tokens, usage.requests, usage.tool_calls, usage.cost_usd) == (7, 3, 1, 3, None)
