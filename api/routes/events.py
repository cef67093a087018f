"""The event stream of a session, and tickets for it."""

from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Header, Query, Response

from activities.db.events import TurnStart
from api.access import CallerDep, require_visible
from api.answers import StreamTicket
from api.deps import Api, ApiDep
from api.errors import not_found
from api.intake import StrictRoute
from api.openapi import STREAM, problems
from api.schemas import IdPath
from api.stream import event_stream, parse_start
from api.tickets import ReaderDep, issue
from api.turns import open_door
from workflows.model.session import Caller

router = APIRouter(prefix="/api/sessions", tags=["streams"], route_class=StrictRoute)


@router.get("/{session_id}/events", responses=STREAM | problems(401, 404, 410, 422, 503))
async def read_events(
    session_id: IdPath,
    api: ApiDep,
    reader: ReaderDep,
    after: Annotated[str | None, Query(description="A cursor: the id of an event, or `before:<turn_id>`")] = None,
    until: Annotated[Literal["turn"] | None, Query(description="`turn`: end after the first `turn.completed`")] = None,
    last_event_id: Annotated[str | None, Header(description="As `after`; a reconnecting reader sends it")] = None,
) -> Response:
    """A session's events from any point on, then as they come."""
    start = parse_start(last_event_id, after)
    session_uid = await _find(api, reader.caller, session_id, awaited=isinstance(start, TurnStart))
    if not reader.may_read(session_uid):
        raise not_found()
    return await event_stream(api, reader.caller, session_id, session_uid, start, until_turn=until == "turn")


@router.post("/{session_id}/stream-ticket", responses=problems(401, 403, 404, 422, 503))
async def make_ticket(session_id: IdPath, api: ApiDep, caller: CallerDep) -> StreamTicket:
    """A ticket for the session's events, for readers that can't send headers, such as a browser's `EventSource`."""
    return issue(api, caller, await _find(api, caller, session_id, awaited=True))


async def _find(api: Api, caller: Caller, session_id: str, *, awaited: bool) -> UUID:
    """The session's uid. One that was accepted a moment ago may have no rows: who awaits its turn has it from the workflow."""
    door = await open_door(api, caller, session_id)
    if door is not None:
        return door.session_uid
    if not awaited:
        raise not_found()
    head = await api.workflows.head(caller.tenant, session_id)
    require_visible(caller, head.owner)
    return UUID(head.session_uid)
