"""Erasures: what is left of deleted sessions."""

from fastapi import APIRouter

from api.access import CallerDep
from api.answers import Erasure
from api.deps import ApiDep
from api.errors import not_found
from api.intake import StrictRoute
from api.openapi import problems
from api.schemas import IdPath
from api.temporal import find_erasure

router = APIRouter(prefix="/api/erasures", tags=["sessions"], route_class=StrictRoute)


@router.get("/{erasure_id}", response_model_exclude_none=True, responses=problems(404, 422, 503))
async def read_erasure(erasure_id: IdPath, api: ApiDep, caller: CallerDep) -> Erasure:
    """How far a deletion is: `done` once nothing is left in Postgres and Temporal. For the owner that the session had, and for admins."""
    found = await find_erasure(api.temporal, erasure_id)
    if found is None or found.tenant != caller.tenant or not (caller.is_admin or found.owner == caller.principal):
        raise not_found("erasure")
    removed = found.erased
    return Erasure(
        erasure_id=erasure_id,
        status=found.status,
        session_ids=[found.session_id],
        rows=removed and removed.rows,
        workflow_runs=removed and removed.workflow_runs,
        payloads=removed and removed.payloads,
        verified=removed is not None,
        at=found.at,
    )
