"""The host's inbox: everything that waits for a host."""

from fastapi import APIRouter

from api.access import CallerDep, owner_filter
from api.answers import HostAction, HostActionList
from api.deps import ApiDep
from api.intake import StrictRoute
from api.openapi import problems
from api.paging import DEFAULT_LIMIT, Limit, decode, next_cursor
from api.pause_tokens import fresh_tokens

router = APIRouter(prefix="/api", tags=["sessions"], route_class=StrictRoute)


@router.get("/host-actions", responses=problems(422, 503))
async def list_host_actions(api: ApiDep, caller: CallerDep, limit: Limit = DEFAULT_LIMIT, after: str | None = None) -> HostActionList:
    """All pending host actions that the caller may see, oldest first."""
    found = await api.reads.host_actions(caller.tenant, owner_filter(caller), behind=decode(after), count=limit + 1)
    actions = [HostAction.of_session(pending, fresh_tokens(api, caller, pending)) for _, pending in found[:limit]]
    return HostActionList(host_actions=actions, next_cursor=next_cursor([place for place, _ in found], limit))
