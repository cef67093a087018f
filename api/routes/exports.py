"""Exports: a whole session, or one path of it, as a file."""

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query, Response

from activities.db.export_formats import MEDIA_TYPES, Exportable, exported, file_name
from activities.db.exports import Format
from api.access import CallerDep
from api.deps import ApiDep
from api.downloads import download
from api.errors import not_found
from api.intake import StrictRoute
from api.openapi import Responses
from api.routes.sessions import READ, seen
from api.schemas import Id, IdPath

router = APIRouter(prefix="/api/sessions", tags=["transcripts"], route_class=StrictRoute)
FILE: Responses = {
    200: {
        "description": "The file",
        "content": {kind.partition(";")[0]: {"schema": {} if "/json" in kind else {"type": "string"}} for kind in MEDIA_TYPES.values()},
    }
}


@router.get("/{session_id}/export", responses=READ | FILE, response_class=Response)
async def export_session(
    session_id: IdPath,
    api: ApiDep,
    caller: CallerDep,
    format: Format = "jsonl",
    leaf_id: Annotated[Id | None, Query(description="One path; absent: the tree (jsonl), or the active path")] = None,
) -> Response:
    """A session as a file, of any length. It leaves an audit row (S78)."""
    session = await seen(api, caller, session_id)
    if leaf_id is not None and not await api.exports.has(session.session_uid, leaf_id):
        raise not_found("message")
    what = Exportable.of(session, leaf_id, format)
    facts = {"format": format, "leaf_id": what.leaf_id, "revision": session.revision}
    await api.exports.note(caller.tenant, session.session_uid, caller.principal, datetime.now(UTC), facts)
    return await download(exported(api.exports, what, format), MEDIA_TYPES[format], file_name(session_id, format))
