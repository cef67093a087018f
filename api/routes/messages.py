"""Messages of a session: paths, the tree, single rows and what they answered to; host cards."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import TypeAdapter

from api.access import CallerDep
from api.deps import ApiDep
from api.errors import not_found
from api.idempotency import OnceDep
from api.intake import StrictRoute
from api.message_answers import MessageList, MessageRow, PromptRecord, Tree
from api.openapi import problems
from api.routes.sessions import READ, seen
from api.schemas import Id, IdPath
from api.write_bodies import CardBody
from api.writes import post_card

router = APIRouter(prefix="/api/sessions", tags=["messages"], route_class=StrictRoute)
ROW: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


@router.get("/{session_id}/messages", response_model=MessageList, response_model_exclude_unset=True, responses=READ)
async def read_messages(
    session_id: IdPath, api: ApiDep, caller: CallerDep, leaf_id: Annotated[Id | None, Query()] = None
) -> dict[str, Any]:
    """The messages of one path, root first: the active one, or the one that ends at `leaf_id` (R67). Steering stands among them (R157)."""
    session = await seen(api, caller, session_id)
    leaf = leaf_id or session.active_leaf_id
    rows = [] if leaf is None else await api.messages.path(session.session_uid, leaf)
    if leaf_id is not None and not rows:
        raise not_found("message")
    return {"messages": rows}


@router.get("/{session_id}/tree", response_model=Tree, responses=READ)
async def read_tree(session_id: IdPath, api: ApiDep, caller: CallerDep) -> dict[str, Any]:
    """Every message of a session with its parent."""
    session = await seen(api, caller, session_id)
    return {"messages": await api.messages.tree(session.session_uid)}


@router.get("/{session_id}/messages/{message_id}", response_model=MessageRow, response_model_exclude_unset=True, responses=READ)
async def read_message(session_id: IdPath, message_id: IdPath, api: ApiDep, caller: CallerDep) -> dict[str, Any]:
    """One message."""
    session = await seen(api, caller, session_id)
    row = await api.messages.one(session.session_uid, message_id)
    if row is None:
        raise not_found("message")
    return row


@router.get("/{session_id}/messages/{message_id}/prompt", responses=READ)
async def read_prompt(session_id: IdPath, message_id: IdPath, api: ApiDep, caller: CallerDep) -> PromptRecord:
    """What the model was told before the conversation, for the newest answer in this message."""
    session = await seen(api, caller, session_id)
    parts = await api.changes.prompt(session.session_uid, message_id)
    if parts is None:
        raise not_found("message")
    return PromptRecord.model_validate({"message_id": message_id, "prompt": parts})


@router.post(
    "/{session_id}/messages",
    status_code=201,
    response_model=MessageRow,
    response_model_exclude_unset=True,
    responses=problems(403, 404, 409, 413, 415, 422, 503),
)
async def post_message(session_id: IdPath, body: CardBody, api: ApiDep, caller: CallerDep, once: OnceDep) -> dict[str, Any]:
    """Posts a host card under the active leaf (R169). Not while a turn runs or a host action is pending."""
    post = partial(post_card, api, caller, session_id, body)
    return await once.run(post, ROW, route=f"card {session_id}", body=body, status=201)
