"""What `outlast chat` makes of what a person types, and of what a model sends to a terminal."""

import io
from typing import Any

import pytest

from cli.chat.client import Event
from cli.chat.loop import parse_answer
from cli.chat.screen import Screen, brief


@pytest.mark.parametrize(
    ("said", "outcome", "result"),
    [
        ("it is open", "success", "it is open"),
        ('{"id": 7}', "success", {"id": 7}),
        ("42", "success", 42),
        ('"failed"', "success", "failed"),
        ("failed: no such page", "failed", "no such page"),
        ("failed no such page", "failed", "no such page"),
        ("Denied", "denied", "denied"),
        ("denied:", "denied", "denied"),
        ("failedly", "success", "failedly"),
    ],
)
def test_an_answer_is_an_outcome_a_json_value_or_text(said: str, outcome: str, result: Any) -> None:
    assert parse_answer(said) == (outcome, result)


def shown(*events: Event) -> str:
    out = io.StringIO()
    screen = Screen(out=out, notes=out)
    for event in events:
        screen.show(event)
    return out.getvalue()


def test_control_characters_of_a_model_do_not_reach_the_terminal() -> None:
    text = shown(Event("text.delta", {"text": "a\x1b]0;title\x07b\x9b2Jc\td\ne"}), Event("tool.result", {"output": "\x1b[31mred"}))
    assert text == "a]0;titleb2Jc\td\ne\n  → [31mred\n"


def test_kinds_of_text_and_lines_do_not_run_into_each_other() -> None:
    text = shown(
        Event("thinking.delta", {"text": "hm"}),
        Event("text.delta", {"text": "Let me "}),
        Event("text.delta", {"text": "look."}),
        Event("tool.call", {"tool_name": "roll_dice", "arguments": {"sides": 6}, "category": "server"}),
        Event("tool.call", {"tool_name": "open_page", "arguments": {}, "category": "host"}),
        Event("text.delta", {"text": "Six."}),
        Event("turn.error", {"error": {"type": "timeout", "message": "too slow"}}),
    )
    assert text == 'hm\nLet me look.\n· roll_dice {"sides": 6}\nSix.\n! timeout: too slow\n'


def test_long_values_are_shortened_and_calls_for_the_host_are_not() -> None:
    assert len(brief({"text": "x" * 1000})) == 200
    out = io.StringIO()
    Screen(out=out, notes=out).pending({"tool_name": "file_form", "arguments": {"text": "x" * 1000}})
    assert "x" * 1000 in out.getvalue()
