"""Transcripts: one path of a session, verbatim."""

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query

from activities.db.reads import SessionDetail
from activities.db.transcripts import Speaker, TranscriptRow
from api.access import CallerDep
from api.deps import Api, ApiDep
from api.errors import RequestRefused, not_found
from api.intake import StrictRoute
from api.routes.sessions import READ, seen
from api.schemas import Id, IdPath
from api.times import UtcTime
from api.transcript_answers import Transcript, TranscriptMessage

router = APIRouter(prefix="/api/sessions", tags=["transcripts"], route_class=StrictRoute)

Time = Annotated[UtcTime, Query(description="ISO 8601 with offset, inclusive")]
Index = Annotated[int | None, Query(description="From 0; negative: from the end")]


@router.get("/{session_id}/transcript", response_model_exclude_unset=True, responses=READ)
async def read_transcript(
    session_id: IdPath,
    api: ApiDep,
    caller: CallerDep,
    index: Index = None,
    since: Annotated[Time | None, Query(alias="from")] = None,
    until: Annotated[Time | None, Query(alias="to")] = None,
    speaker: Speaker = "all",
    limit: Annotated[int | None, Query(ge=0, description="At most so many rows, the oldest; absent: all")] = None,
    leaf_id: Annotated[Id | None, Query()] = None,
) -> Transcript:
    """Rows of one path, verbatim: the active one, or the one that ends at `leaf_id`; one row by its ordinal, those of a time, or all."""
    if index is not None and (since is not None or until is not None):
        raise RequestRefused(422, "`index` does not go with `from` or `to`: ask for a row by its number or for a time")
    session = await seen(api, caller, session_id)
    rows = await _rows(api, session, leaf_id or session.active_leaf_id, index, (since, until), speaker, limit)
    if rows is None:
        raise not_found("message")
    messages = [TranscriptMessage.of(row) for row in rows]
    return Transcript(session_id=session_id, revision=session.revision, messages=messages)


async def _rows(
    api: Api,
    session: SessionDetail,
    leaf_id: str | None,
    index: int | None,
    times: tuple[datetime | None, datetime | None],
    speaker: Speaker,
    limit: int | None,
) -> list[TranscriptRow] | None:
    uid, transcripts = session.session_uid, api.transcripts
    if leaf_id is None:
        return []
    if index is not None:
        rows = await transcripts.at(uid, leaf_id, speaker, index)
        return rows[:limit] if rows else rows
    if times != (None, None):
        return await transcripts.between(uid, leaf_id, speaker, *times, limit)
    return await transcripts.whole(uid, leaf_id, speaker, limit)
