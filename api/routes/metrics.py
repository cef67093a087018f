"""Metrics of sessions: what they did, cost and took."""

from typing import Annotated

from fastapi import APIRouter, Query

from activities.db.metrics import Percentiles, SessionMetrics
from activities.db.reads import Place
from api.access import CallerDep
from api.answers import Answer
from api.deps import ApiDep
from api.errors import not_found
from api.intake import StrictRoute
from api.openapi import problems
from api.paging import DEFAULT_LIMIT, Limit, decode, next_cursor
from api.routes.sessions import READ
from api.schemas import IdPath
from api.times import UtcTime

router = APIRouter(prefix="/api/metrics/sessions", tags=["metrics"], route_class=StrictRoute)


class Milliseconds(Answer):
    """The median, and what 95 of 100 did not exceed; null if nothing was measured yet."""

    p50: int | None
    p95: int | None

    @classmethod
    def of(cls, found: Percentiles) -> "Milliseconds":
        """As it was counted."""
        return cls(p50=found.p50, p95=found.p95)


class Measured(Answer):
    """What a session did, cost and took. `cost_usd` is a decimal as text, null if no model had a known price."""

    session_id: str
    turns: int
    steps: int
    input_tokens: int
    output_tokens: int
    cost_usd: str | None
    tool_calls: int
    errors: dict[str, int]
    first_text_ms: Milliseconds
    turn_ms: Milliseconds
    host_wait_ms: int

    @classmethod
    def of(cls, session_id: str, found: SessionMetrics) -> "Measured":
        """As it was counted."""
        return cls(
            session_id=session_id,
            turns=found.turns,
            steps=found.steps,
            input_tokens=found.input_tokens,
            output_tokens=found.output_tokens,
            cost_usd=None if found.cost_usd is None else format(found.cost_usd, "f"),
            tool_calls=found.tool_calls,
            errors=found.errors,
            first_text_ms=Milliseconds.of(found.first_text_ms),
            turn_ms=Milliseconds.of(found.turn_ms),
            host_wait_ms=found.host_wait_ms,
        )


class MeasuredList(Answer):
    """Metrics of the caller's own sessions, newest first."""

    sessions: list[Measured]
    next_cursor: str | None


@router.get("", responses=problems(422, 503))
async def list_metrics(
    api: ApiDep,
    caller: CallerDep,
    limit: Limit = DEFAULT_LIMIT,
    cursor: str | None = None,
    updated_after: Annotated[UtcTime | None, Query()] = None,
) -> MeasuredList:
    """Metrics of the caller's own sessions, an admin's too (S72)."""
    count = limit + 1
    lines = await api.reads.sessions(caller.tenant, caller.principal, updated_after=updated_after, behind=decode(cursor), count=count)
    shown = lines[:limit]
    found = await api.metrics.of([line.session_uid for line in shown])
    measured = [Measured.of(line.session_id, one) for line, one in zip(shown, found, strict=True)]
    return MeasuredList(sessions=measured, next_cursor=next_cursor([Place(line.updated_at, line.session_uid) for line in lines], limit))


@router.get("/{session_id}", responses=READ)
async def read_metrics(session_id: IdPath, api: ApiDep, caller: CallerDep) -> Measured:
    """Metrics of one of the caller's own sessions. Of any other, also to an admin: 404 (S72)."""
    session = await api.reads.session(caller.tenant, session_id)
    if session is None or session.owner != caller.principal:
        raise not_found()
    return Measured.of(session_id, (await api.metrics.of([session.session_uid]))[0])
