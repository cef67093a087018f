"""Search over what was said."""

from typing import Annotated

from fastapi import APIRouter, Query

from api.access import CallerDep
from api.answers import Answer
from api.deps import ApiDep
from api.errors import RequestRefused
from api.intake import StrictRoute
from api.openapi import problems
from api.paging import DEFAULT_LIMIT, Limit, decode_hit, next_cursor

router = APIRouter(prefix="/api/search", tags=["transcripts"], route_class=StrictRoute)

Words = Annotated[str, Query(min_length=1, max_length=1000, description='Words, "phrases", or, -without')]


class SearchHit(Answer):
    """A message, or steering, that has the words. `snippet` is plain text around them, with no marks in it."""

    session_id: str
    message_id: str
    snippet: str


class SearchHits(Answer):
    """Hits in the caller's own sessions, newest first."""

    hits: list[SearchHit]
    next_cursor: str | None


@router.get("/sessions", responses=problems(422, 503))
async def search_sessions(q: Words, api: ApiDep, caller: CallerDep, limit: Limit = DEFAULT_LIMIT, cursor: str | None = None) -> SearchHits:
    """Finds messages of the caller's own sessions, on any path of them, by their words."""
    if "\0" in q:
        raise RequestRefused(422, "q must not contain NUL characters")
    found = await api.search.messages(caller.tenant, caller.principal, q, behind=decode_hit(cursor), count=limit + 1)
    hits = [SearchHit(session_id=hit.session_id, message_id=hit.message_id, snippet=hit.snippet) for hit in found[:limit]]
    return SearchHits(hits=hits, next_cursor=next_cursor([hit.place for hit in found], limit))
