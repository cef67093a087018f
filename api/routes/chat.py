"""Turns: a message or a host's result in, the turn's answer, stream or receipt out."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.responses import JSONResponse

from api.access import CallerDep
from api.answers import Accepted, ChatAnswer
from api.deps import Api, ApiDep
from api.intake import StrictRoute
from api.openapi import STREAM, problems
from api.schemas import NOTHING_SAID, ChangeBody, ChatBody, IdPath
from api.stream import event_stream
from api.turns import Started, begin, retry
from api.waiting import final_of

router = APIRouter(prefix="/api", tags=["turns"], route_class=StrictRoute)
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": ChatAnswer, "description": "The turn has ended, by itself, by an error or to ask the host"},
    202: {"model": Accepted, "description": "The turn is accepted and goes on"},
}


def patience(
    api: ApiDep,
    wait: Annotated[bool, Query(description="false: answer 202 at once")] = True,
    prefer: Annotated[list[str] | None, Header(description="`respond-async` (answer 202 at once) or `wait=N` (seconds)")] = None,
) -> float:
    """How many seconds the answer may wait for the turn; 0 answers 202 at once (RFC 7240)."""
    seconds = api.settings.api.wait_seconds
    for preference in ",".join(prefer or ()).split(","):
        name, _, value = preference.partition(";")[0].strip().lower().partition("=")
        if name == "respond-async":
            return 0.0
        if name == "wait" and value.strip('"').isdecimal():
            seconds = min(seconds, float(value.strip('"')))
    return seconds if wait else 0.0


PatienceDep = Annotated[float, Depends(patience)]


@router.post("/chat", responses=ANSWERS | problems(403, 404, 409, 413, 415, 422, 429, 503))
async def chat(body: ChatBody, api: ApiDep, caller: CallerDep, seconds: PatienceDep) -> Response:
    """Runs a turn and answers when it ends."""
    return await _answer(api, await begin(api, caller, body, seconds), seconds)


@router.post("/chat/stream", responses=STREAM | problems(403, 404, 409, 413, 415, 422, 429, 503))
async def chat_stream(body: ChatBody, api: ApiDep, caller: CallerDep) -> Response:
    """Runs a turn and sends its events. What does not fit the session is refused before any stream begins (R78)."""
    turn = await begin(api, caller, body, api.settings.api.wait_seconds)
    headers = {"X-Session-ID": turn.session_id}
    return event_stream(api, turn.session_id, turn.session_uid, turn.begins, until_turn=True, headers=headers)


@router.post("/sessions/{session_id}/turns/{turn_id}/retry", responses=ANSWERS | problems(403, 404, 409, 415, 422, 503))
async def retry_turn(
    session_id: IdPath, turn_id: IdPath, api: ApiDep, caller: CallerDep, seconds: PatienceDep, body: ChangeBody = NOTHING_SAID
) -> Response:
    """Runs the failed step of the last turn again and answers as `POST /api/chat` does."""
    turn = await retry(api, caller, session_id, turn_id, body.expected_revision)
    return await _answer(api, turn, seconds)


async def _answer(api: Api, turn: Started, seconds: float) -> Response:
    headers = {"X-Session-ID": turn.session_id}
    final = await final_of(api, turn.session_uid, turn.begins, seconds) if seconds > 0 else None
    if final is not None:
        return Response(final, media_type="application/json", headers=headers)
    accepted = Accepted(
        session_id=turn.session_id,
        user_message_id=turn.user_message_id,
        message_id=turn.message_id,
        turn_id=turn.turn_id,
        events=turn.events,
    )
    return JSONResponse(accepted.model_dump(), 202, headers)
