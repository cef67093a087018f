"""What a turn and a principal may still use, asked before each model request."""

from datetime import UTC, datetime
from math import ceil

from activities.db.ledger import used_today
from activities.db.session_tx import sql
from activities.kit import Kit
from activities.limits import steps_allowed, turn_budget
from activities.patience import patiently
from profiles import Profile
from workflows.contracts.errors import TurnFault
from workflows.contracts.steps import RunStep
from workflows.model.turn import TurnError, Usage
from workflows.rules.limits import budget_of, is_limited, reached


async def check_budgets(kit: Kit, step: RunStep, profile: Profile, used: Usage) -> int | None:
    """How many output tokens the turn, which `used` so much, has left (None: no limit).

    Raises TurnFault if it, or the session's owner today, has used up what it may (R85), or it made as many requests as it may (S35).
    """
    allowed = steps_allowed(kit.settings, profile, step.config)
    if step.step > allowed:
        raise TurnFault(TurnError.of("usage_limit", f"the turn made {allowed} model requests, which is its limit"))
    budget = turn_budget(kit.settings, profile, step.config)
    if spent := reached(used, budget):
        raise TurnFault(TurnError.of("usage_limit", f"the turn's budget is used up: {spent}"))
    day = budget_of(kit.settings.budget.day.model_dump())
    if is_limited(day) and (spent := reached(await patiently(lambda: _used_today(kit, step)), day)):
        raise TurnFault(TurnError.of("usage_limit", f"the budget of the day is used up: {spent}"))
    return None if budget.max_output_tokens is None else ceil(budget.max_output_tokens) - used.output_tokens


async def _used_today(kit: Kit, step: RunStep) -> Usage:
    async with kit.db.connection() as conn:
        owner = await sql.owner_of(conn, session_uid=step.session.session_uid)
        return await used_today(conn, step.session.tenant, owner, datetime.now(UTC))
