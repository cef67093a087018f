"""Sessions: lists, state, changes of their fields, cancel, repair and deletion."""

from functools import partial

from fastapi import APIRouter
from pydantic import TypeAdapter

from activities.db.reads import Place, SessionDetail
from api import writes
from api.access import CallerDep, owner_filter, require_visible
from api.answers import NO_TOKENS, CancelAnswer, ErasureBegun, RepairAnswer, SessionItem, SessionList, SessionView
from api.deps import Api, ApiDep
from api.errors import not_found
from api.idempotency import OnceDep
from api.intake import StrictRoute
from api.openapi import problems
from api.paging import DEFAULT_LIMIT, Limit, decode, next_cursor
from api.pause_tokens import fresh_tokens
from api.schemas import IdPath
from api.times import UtcTime
from api.write_bodies import NO_TURN_NAMED, NOTHING_SAID, AmendBody, CancelBody, ChangeBody, ExpectedDep
from workflows.model.session import Caller

router = APIRouter(prefix="/api/sessions", tags=["sessions"], route_class=StrictRoute)
READ = problems(404, 422, 503)
WRITE = problems(403, 404, 409, 415, 422, 503)


@router.get("", responses=problems(422, 503))
async def list_sessions(
    api: ApiDep, caller: CallerDep, limit: Limit = DEFAULT_LIMIT, cursor: str | None = None, updated_after: UtcTime | None = None
) -> SessionList:
    """The caller's sessions (an admin's: all of the tenant), newest first."""
    lines = await api.reads.sessions(
        caller.tenant, owner_filter(caller), updated_after=updated_after, behind=decode(cursor), count=limit + 1
    )
    places = [Place(line.updated_at, line.session_uid) for line in lines]
    return SessionList(sessions=[SessionItem.of(line) for line in lines[:limit]], next_cursor=next_cursor(places, limit))


@router.get("/{session_id}", responses=READ)
async def read_session(session_id: IdPath, api: ApiDep, caller: CallerDep) -> SessionView:
    """Where a session stands."""
    session = await seen(api, caller, session_id)
    return SessionView.of_detail(session, fresh_tokens(api, caller, session.pending) if session.pending else NO_TOKENS)


@router.patch("/{session_id}", responses=WRITE)
async def amend_session(session_id: IdPath, body: AmendBody, api: ApiDep, caller: CallerDep, once: OnceDep) -> SessionView:
    """Changes title, active leaf or (admins only) owner."""
    change = partial(writes.amend, api, caller, session_id, body)
    return await once.run(change, TypeAdapter(SessionView), route=f"amend {session_id}", body=body)


@router.delete("/{session_id}", status_code=202, responses=WRITE)
async def delete_session(session_id: IdPath, api: ApiDep, caller: CallerDep, once: OnceDep, expected: ExpectedDep) -> ErasureBegun:
    """Deletes a session. It is not readable any more; `GET /api/erasures/{erasure_id}` says when nothing is left of it."""
    close = partial(writes.close, api, caller, session_id, expected)
    return await once.run(close, TypeAdapter(ErasureBegun), route=f"delete {session_id}", body=expected, status=202)


@router.post("/{session_id}/cancel", responses=WRITE)
async def cancel(session_id: IdPath, api: ApiDep, caller: CallerDep, once: OnceDep, body: CancelBody = NO_TURN_NAMED) -> CancelAnswer:
    """Ends the live turn, or the named one whenever it comes. Answers when the cancel is durable."""
    end = partial(writes.cancel, api, caller, session_id, body)
    return await once.run(end, TypeAdapter(CancelAnswer), route=f"cancel {session_id}", body=body)


@router.post("/{session_id}/repair", responses=WRITE)
async def repair(session_id: IdPath, api: ApiDep, caller: CallerDep, once: OnceDep, body: ChangeBody = NOTHING_SAID) -> RepairAnswer:
    """Resolves the pending action and every open call as `unknown` (R137)."""
    mend = partial(writes.repair, api, caller, session_id, body)
    return await once.run(mend, TypeAdapter(RepairAnswer), route=f"repair {session_id}", body=body)


async def seen(api: Api, caller: Caller, session_id: str) -> SessionDetail:
    """The session, if the caller may see it. Raises the refusal `not_found`."""
    session = await api.reads.session(caller.tenant, session_id)
    if session is None:
        raise not_found()
    require_visible(caller, session.owner)
    return session
