"""Health: alive and usable at all, and ready for work."""

from typing import Literal

from fastapi import APIRouter
from fastapi.responses import JSONResponse, Response

from api.answers import Answer
from api.deps import ApiDep
from api.errors import problem
from api.openapi import problems
from api.probes import Finding, examine

router = APIRouter(tags=["health"])


class Check(Answer):
    """What one part said."""

    ok: bool
    error: str | None = None


class Health(Answer):
    """`ok`: everything is there. `degraded`: something is not, and what needs it answers 503. `unusable`: nothing would work."""

    status: Literal["ok", "degraded", "unusable"]
    durable: bool
    checks: dict[Literal["postgres", "temporal", "worker"], Check]


class Ready(Answer):
    """Everything is there."""

    status: Literal["ready"] = "ready"
    durable: bool


@router.get("/health", response_model=Health, responses={503: {"model": Health, "description": "Neither reads nor writes would work"}})
async def health(api: ApiDep) -> Response:
    """Whether the api is of use: 200 while reads or writes work."""
    findings = await examine(api)
    lost = {finding.part for finding in findings if finding.error is not None}
    status: Literal["ok", "degraded", "unusable"] = "degraded" if lost else "ok"
    if {"postgres", "temporal"} <= lost:
        status = "unusable"
    body = Health(status=status, durable=api.durable, checks={finding.part: _check(finding) for finding in findings})
    return JSONResponse(body.model_dump(), 503 if status == "unusable" else 200)


@router.get("/health/ready", response_model=Ready, responses=problems(503))
async def ready(api: ApiDep) -> Response:
    """Whether the api may be sent work: Temporal, Postgres at the head schema, and a worker that asks for work."""
    findings = await examine(api)
    lost = [f"{finding.part} ({finding.error})" for finding in findings if finding.error is not None]
    if lost:
        checks = {finding.part: _check(finding).model_dump() for finding in findings}
        return problem(503, "not_ready", f"not ready: {'; '.join(lost)}", headers={"Retry-After": "2"}, checks=checks)
    return JSONResponse(Ready(durable=api.durable).model_dump())


def _check(finding: Finding) -> Check:
    return Check(ok=finding.error is None, error=finding.error)
