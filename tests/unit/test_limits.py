"""Budgets: which limit counts, and when it is reached."""

import pytest

from workflows.model.budget import Budget
from workflows.model.turn import Usage
from workflows.rules.limits import budget_of, is_limited, lowest, reached

USED = Usage(input_tokens=60, output_tokens=40, requests=3, cost_usd="0.30")


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"max_input_tokens": 61}, None),
        ({"max_input_tokens": 60}, "60 of 60 input tokens"),
        ({"max_output_tokens": 39}, "40 of 39 output tokens"),
        ({"max_total_tokens": 100}, "100 of 100 tokens"),
        ({"max_total_tokens": 101, "max_requests": 3}, "3 of 3 model requests"),
        ({"max_cost_usd": 0.3}, "0.30 of 0.3 US dollars"),
        ({"max_cost_usd": 0.31}, None),
        ({}, None),
    ],
)
def test_r85_a_limit_is_reached_when_nothing_is_left(limits: dict[str, float], words: str | None) -> None:
    assert reached(USED, Budget(**limits)) == words


def test_r85_a_model_without_a_price_reaches_no_limit_in_dollars() -> None:
    assert reached(Usage(requests=9), Budget(max_cost_usd=0.01)) is None


def test_r85_of_several_budgets_the_lowest_limit_counts() -> None:
    settings, profile, request = (
        budget_of({"max_requests": 5, "max_cost_usd": 0}),
        Budget(max_requests=3),
        Budget(max_requests=9, max_cost_usd=1),
    )
    assert lowest(settings, profile, request) == Budget(max_requests=3, max_cost_usd=1)
    assert not is_limited(lowest(budget_of({"max_requests": 0}))) and is_limited(lowest(profile))
