"""Erasures: what is left of deleted sessions."""

from uuid import UUID

from fastapi import APIRouter

from activities.db.erasures import find_receipt
from api.access import CallerDep, may_see
from api.deps import ApiDep
from api.erasure_answers import Erasure
from api.errors import not_found
from api.intake import StrictRoute
from api.openapi import problems
from api.schemas import IdPath

router = APIRouter(prefix="/api/erasures", tags=["sessions"], route_class=StrictRoute)


@router.get("/{erasure_id}", responses=problems(404, 422, 503))
async def read_erasure(erasure_id: IdPath, api: ApiDep, caller: CallerDep) -> Erasure:
    """How far a deletion is: `done` once nothing is left in Postgres and Temporal. For the owner that the session had, and for admins."""
    try:
        receipt = await find_receipt(api.database, UUID(erasure_id))
    except ValueError:
        receipt = None
    if receipt is None or receipt.tenant != caller.tenant or not may_see(caller, receipt.principal):
        raise not_found("erasure")
    return Erasure.of_receipt(receipt)
