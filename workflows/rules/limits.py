"""When a budget is used up, and which of several counts."""

from collections.abc import Mapping
from decimal import Decimal

from workflows.model.budget import Budget
from workflows.model.turn import Usage


def budget_of(limits: Mapping[str, float]) -> Budget:
    """The budget that settings, a profile or a request names. 0 sets no limit."""
    return Budget(**{name: limit for name, limit in limits.items() if limit})


def lowest(*budgets: Budget) -> Budget:
    """The budget that keeps within all of them: of each limit the lowest, so that nobody can raise what another one set."""
    limits = {name: [limit for budget in budgets if (limit := getattr(budget, name)) is not None] for name in Budget.model_fields}
    return Budget(**{name: min(found) for name, found in limits.items() if found})


def is_limited(budget: Budget) -> bool:
    """True if the budget sets any limit."""
    return any(getattr(budget, name) is not None for name in Budget.model_fields)


def reached(used: Usage, budget: Budget) -> str | None:
    """The first limit that is used up, in words; None: there is something left of each (R85, S74)."""
    spent = (
        ("input tokens", used.input_tokens, budget.max_input_tokens),
        ("output tokens", used.output_tokens, budget.max_output_tokens),
        ("tokens", used.total_tokens, budget.max_total_tokens),
        ("model requests", used.requests, budget.max_requests),
        ("US dollars", Decimal(used.cost_usd or 0), budget.max_cost_usd),
    )
    return next(
        (f"{amount} of {limit:g} {what}" for what, amount, limit in spent if limit is not None and amount >= Decimal(str(limit))), None
    )
