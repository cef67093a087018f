"""Turns: a message, steering or a host's result in, the turn's answer, stream or receipt out."""

import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Header, Path, Query, Response
from fastapi.responses import JSONResponse
from pydantic import TypeAdapter

from activities.db.events import TurnStart
from api.access import CallerDep, require_visible
from api.answers import Accepted, ChatAnswer, SteeringAccepted
from api.deps import Api, ApiDep
from api.errors import not_found
from api.idempotency import Done, Once, OnceDep, Token
from api.intake import StrictRoute
from api.openapi import STREAM, problems
from api.pause_tokens import add_tokens
from api.resuming import open_token, paused, redeem
from api.schemas import ChatBody, IdPath
from api.steering import Steered, steer
from api.stream import event_stream
from api.turns import Started, begin, retry
from api.waiting import deleted_meanwhile, final_of
from api.write_bodies import NOTHING_SAID, ChangeBody, ResumeBody
from workflows.contracts.errors import ServiceUnavailable
from workflows.contracts.json_text import json_text
from workflows.model.session import Caller

router = APIRouter(prefix="/api", tags=["turns"], route_class=StrictRoute)
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": ChatAnswer, "description": "The turn has ended, by itself, by an error or to ask the host"},
    202: {"model": Accepted | SteeringAccepted, "description": "The turn is accepted and goes on; or steering is accepted"},
}
RESUMED = ANSWERS | {200: ANSWERS[200] | {"content": STREAM[200]["content"]}} | problems(401, 403, 404, 409, 410, 413, 415, 422, 429, 503)
STARTED: TypeAdapter[Started] = TypeAdapter(Started)
BEGUN: TypeAdapter[Started | Steered] = TypeAdapter(Started | Steered)
Begun = TypeVar("Begun", bound=Started | Steered)


async def patience(
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
async def chat(body: ChatBody, api: ApiDep, caller: CallerDep, once: OnceDep, seconds: PatienceDep) -> Response:
    """Runs a turn and answers when it ends. Steering is answered at once."""
    return await _answer(api, caller, await _begin(api, caller, once, body, seconds), seconds)


@router.post("/chat/stream", responses=STREAM | problems(403, 404, 409, 410, 413, 415, 422, 429, 503))
async def chat_stream(body: ChatBody, api: ApiDep, caller: CallerDep, once: OnceDep) -> Response:
    """Runs a turn and sends its events. What does not fit the session is refused before any stream begins (R78).

    Steering without a turn of its own has no events: 202.
    """
    turn = await _begin(api, caller, once, body, api.settings.api.wait_seconds)
    if turn.begins is None:
        return await _answer(api, caller, turn, 0)
    return await _stream(api, caller, turn, turn.begins)


@router.post("/sessions/{session_id}/turns/{turn_id}/retry", responses=ANSWERS | problems(403, 404, 409, 415, 422, 503))
async def retry_turn(
    session_id: IdPath,
    turn_id: IdPath,
    api: ApiDep,
    caller: CallerDep,
    once: OnceDep,
    seconds: PatienceDep,
    body: ChangeBody = NOTHING_SAID,
) -> Response:
    """Runs the failed step of the last turn again and answers as `POST /api/chat` does."""
    again = partial(retry, api, caller, session_id, turn_id, body.expected_revision)
    turn = await once.run(_in_session(again), BEGUN, route=f"retry {session_id} {turn_id}", body=body)
    return await _answer(api, caller, turn, seconds)


@router.post("/resume/{pause_token}", responses=RESUMED)
async def resume(
    pause_token: Annotated[str, Path(description="Of a pending call, as its session's owner is shown it")],
    body: ResumeBody,
    api: ApiDep,
    caller: CallerDep,
    once: OnceDep,
    seconds: PatienceDep,
    accept: Annotated[str, Header(description="`text/event-stream`: answer with the turn's events")] = "",
) -> Response:
    """Answers a pending call by its token alone, and then as `POST /api/chat` does, or with the turn's events (S64)."""
    opened = open_token(api, caller, pause_token)
    submit = partial(redeem, api, caller, opened, await paused(api, caller, opened), body, seconds)
    turn = await once.run(_in_session(submit), STARTED, route=f"resume {opened.names}", body=body)
    return await _stream(api, caller, turn, turn.begins) if "text/event-stream" in accept else await _answer(api, caller, turn, seconds)


def _in_session(do: Callable[[Token], Awaitable[Begun]]) -> Callable[[Token], Awaitable[Done[Begun]]]:
    """The same write, with the session that its answer is of."""

    async def done(token: Token) -> Done[Begun]:
        begun = await do(token)
        return begun.session_uid, begun

    return done


async def _begin(api: Api, caller: Caller, once: Once, body: ChatBody, seconds: float) -> Started | Steered:
    """What is kept under a key is which turn it was; what the turn answers is read from its row."""
    if body.message_type == "steering":
        return await once.run(_in_session(partial(steer, api, caller, body)), BEGUN, route="chat", body=body, status=202)
    return await once.run(_in_session(partial(begin, api, caller, body, seconds)), BEGUN, route="chat", body=body)


async def _stream(api: Api, caller: Caller, turn: Started | Steered, begins: TurnStart) -> Response:
    headers = {"X-Session-ID": turn.session_id}
    return await event_stream(api, caller, turn.session_id, turn.session_uid, begins, until_turn=True, headers=headers)


async def _answer(api: Api, caller: Caller, turn: Started | Steered, seconds: float) -> Response:
    headers = {"X-Session-ID": turn.session_id}
    if isinstance(turn, Steered):
        taken = SteeringAccepted(steering_id=turn.steering_id, delivery=turn.delivery, turn_id=turn.turn_id)
        return JSONResponse(taken.model_dump(), 202, headers)
    final = await _final(api, caller, turn, seconds) if seconds > 0 else None
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


async def _final(api: Api, caller: Caller, turn: Started, seconds: float) -> str | None:
    """The 200 body, None if the turn has not ended in time, or can't be shown while Postgres is away."""
    ended = await final_of(api, turn.session_uid, turn.begins, seconds)
    if ended is None:
        return None
    require_visible(caller, ended.owner)
    said = json.loads(ended.final)
    if await deleted_meanwhile(api, caller.tenant, turn.session_id, turn.session_uid, said.get("error")):
        raise not_found()
    pending = said.get("pending_tool_call")
    if pending is None:
        return ended.final
    try:
        await add_tokens(api, caller, turn.session_uid, pending, ended.at)
    except ServiceUnavailable:
        return None
    return json_text(said)
