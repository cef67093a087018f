"""Admission by budget: over it nothing is begun."""

from datetime import UTC, datetime

from activities.db.ledger import seconds_left, used_today
from activities.db.reads import Door, reading
from api.deps import Api
from workflows.contracts.errors import Refusal
from workflows.model.session import Caller
from workflows.rules.limits import budget_of, is_limited, reached


async def check_day(api: Api, caller: Caller, door: Door | None) -> None:
    """Raises the refusal `usage_limit` if the one who pays for a turn has used up the day's budget (S74, S76).

    That is the session's owner, or the caller whose first message makes the session.
    """
    day = budget_of(api.settings.budget.day.model_dump())
    if not is_limited(day):
        return
    now = datetime.now(UTC)
    async with reading(api.database) as conn:
        used = await used_today(conn, caller.tenant, caller.principal if door is None else door.owner, now)
    if spent := reached(used, day):
        raise Refusal("usage_limit", f"the budget of the day is used up: {spent}", retry_after=seconds_left(now))
