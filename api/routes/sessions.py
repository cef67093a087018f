"""Sessions: lists, state, messages, cancel and repair."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import AwareDatetime

from activities.db.reads import Door, Place, SessionDetail
from api.access import CallerDep, owner_filter, require_visible
from api.answers import CancelAnswer, RepairAnswer, SessionItem, SessionList, SessionView
from api.deps import Api, ApiDep
from api.errors import not_found
from api.intake import StrictRoute
from api.message_answers import MessageList, MessageRow, Tree
from api.openapi import problems
from api.paging import DEFAULT_LIMIT, Limit, decode, next_cursor
from api.schemas import NO_TURN_NAMED, NOTHING_SAID, CancelBody, ChangeBody, Id, IdPath
from api.turns import behind_live_turn, open_door, said, sender
from workflows.contracts.inputs import CancelInput, RepairInput, RepairReceipt
from workflows.model.session import Caller

router = APIRouter(prefix="/api/sessions", tags=["sessions"], route_class=StrictRoute)
READ = problems(404, 422, 503)
WRITE = problems(403, 404, 409, 415, 422, 503)


@router.get("", responses=problems(422, 503))
async def list_sessions(
    api: ApiDep, caller: CallerDep, limit: Limit = DEFAULT_LIMIT, cursor: str | None = None, updated_after: AwareDatetime | None = None
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
    return SessionView.of_detail(await _seen(api, caller, session_id))


@router.get("/{session_id}/messages", response_model=MessageList, response_model_exclude_unset=True, responses=READ)
async def read_messages(
    session_id: IdPath, api: ApiDep, caller: CallerDep, leaf_id: Annotated[Id | None, Query()] = None
) -> dict[str, Any]:
    """The messages of one path, root first: the active one, or the one that ends at `leaf_id` (R67)."""
    session = await _seen(api, caller, session_id)
    leaf = leaf_id or session.active_leaf_id
    rows = [] if leaf is None else await api.messages.path(session.session_uid, leaf)
    if leaf_id is not None and not rows:
        raise not_found("message")
    return {"messages": rows}


@router.get("/{session_id}/tree", response_model=Tree, responses=READ)
async def read_tree(session_id: IdPath, api: ApiDep, caller: CallerDep) -> dict[str, Any]:
    """Every message of a session with its parent."""
    session = await _seen(api, caller, session_id)
    return {"messages": await api.messages.tree(session.session_uid)}


@router.get("/{session_id}/messages/{message_id}", response_model=MessageRow, response_model_exclude_unset=True, responses=READ)
async def read_message(session_id: IdPath, message_id: IdPath, api: ApiDep, caller: CallerDep) -> dict[str, Any]:
    """One message."""
    session = await _seen(api, caller, session_id)
    row = await api.messages.one(session.session_uid, message_id)
    if row is None:
        raise not_found("message")
    return row


@router.post("/{session_id}/cancel", responses=WRITE)
async def cancel(session_id: IdPath, api: ApiDep, caller: CallerDep, body: CancelBody = NO_TURN_NAMED) -> CancelAnswer:
    """Ends the live turn, or the named one whenever it comes. Answers when the cancel is durable."""
    door = await open_door(api, caller, session_id, turn_id=body.turn_id)
    receipt = await api.workflows.cancel(session_id, CancelInput(**sender(caller), rows=said(door), turn_id=body.turn_id))
    return CancelAnswer(cancel_requested=receipt.cancel_requested, turn_id=receipt.turn_id)


@router.post("/{session_id}/repair", responses=WRITE)
async def repair(session_id: IdPath, api: ApiDep, caller: CallerDep, body: ChangeBody = NOTHING_SAID) -> RepairAnswer:
    """Resolves the pending action and every open call as `unknown` (R137)."""

    async def offer(door: Door | None) -> RepairReceipt:
        wish = RepairInput(**sender(caller), rows=said(door), expected_revision=body.expected_revision)
        return await api.workflows.repair(session_id, wish)

    receipt = await behind_live_turn(api, partial(open_door, api, caller, session_id), offer, api.settings.api.wait_seconds)
    return RepairAnswer(session_id=session_id, cleared_pending=receipt.cleared_pending, repaired_calls=list(receipt.repaired_calls))


async def _seen(api: Api, caller: Caller, session_id: str) -> SessionDetail:
    """The session, if the caller may see it. Raises the refusal `not_found`."""
    session = await api.reads.session(caller.tenant, session_id)
    if session is None:
        raise not_found()
    require_visible(caller, session.owner)
    return session
