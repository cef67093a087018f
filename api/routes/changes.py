"""The change feed of a session."""

from typing import Annotated, Any

from fastapi import APIRouter, Query

from api.access import CallerDep
from api.deps import ApiDep
from api.intake import StrictRoute
from api.message_answers import ChangeList
from api.paging import DEFAULT_LIMIT, Limit, change_cursor, parse_changes
from api.routes.sessions import READ, seen
from api.schemas import IdPath

router = APIRouter(prefix="/api/sessions", tags=["messages"], route_class=StrictRoute)
After = Annotated[str | None, Query(description="A `next_cursor`, or an ISO time: what changed strictly later")]


@router.get("/{session_id}/changes", response_model=ChangeList, response_model_exclude_unset=True, responses=READ)
async def read_changes(
    session_id: IdPath, api: ApiDep, caller: CallerDep, after: After = None, limit: Limit = DEFAULT_LIMIT
) -> dict[str, Any]:
    """Messages and steering as they changed, in the order of the commits: nothing is missed (R262), and what changes again comes again."""
    session = await seen(api, caller, session_id)
    change, since = parse_changes(after, session.session_uid)
    found = await api.changes.after(session.session_uid, change, since, limit)
    cursor = change_cursor(found.behind, session.session_uid)
    return {"messages": found.rows, "next_cursor": cursor, "active_leaf_id": found.active_leaf_id}
