"""From a body to an accepted turn: look at the rows, judge what they can judge, let the session's workflow judge the rest."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from activities.db.events import TurnStart
from activities.db.reads import Door
from api.access import require_visible
from api.attachments import files_of, host_files
from api.budgets import check_day
from api.deps import Api
from api.errors import RequestRefused
from api.idempotency import Token, named
from api.schemas import MAX_CONTENT, ChatBody
from api.waiting import final_of
from workflows.contracts import telemetry
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import ContinuationInput, MessageInput, PauseSaid, RetryInput, RowsSaid, TurnReceipt
from workflows.contracts.json_text import digest_of, json_text
from workflows.model.session import Caller
from workflows.model.turn import TurnConfig
from workflows.rules.admission import already_recorded

LOOK_AGAIN_SECONDS = 0.2
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class Started:
    """An accepted turn."""

    session_id: str
    session_uid: UUID
    turn_id: str
    message_id: str
    user_message_id: str | None
    attempt: int

    @property
    def begins(self) -> TurnStart:
        """The point in the session's event log just before the turn."""
        return TurnStart(self.turn_id, self.attempt)

    @property
    def events(self) -> str:
        """The relative URL of the turn's stream."""
        return f"/api/sessions/{self.session_id}/events?after={self.begins}"


async def begin(api: Api, caller: Caller, body: ChatBody, seconds: float, token: Token, pause: PauseSaid | None = None) -> Started:
    """Submits a message or continuation. `seconds` bounds how long a continuation waits for a live turn to end (R73).

    `pause` is what the pause token says that a continuation came with.

    Raises RequestRefused, Refusal and ServiceUnavailable; nothing has happened then, unless the last says that it may have.
    """
    check_content(body.content)
    check_profile(api, body.profile)
    if body.is_continuation:
        return await _continue(api, caller, body, seconds, token, pause)
    return await _message(api, caller, body, token)


async def retry(api: Api, caller: Caller, session_id: str, turn_id: str, expected_revision: int | None, token: Token) -> Started:
    """Submits a retry of a failed turn."""
    door = await open_door(api, caller, session_id, turn_id=turn_id)
    await check_day(api, caller, door)
    retry = RetryInput(**sender(caller), rows=said(door), expected_revision=expected_revision, key=token, turn_id=turn_id)
    return _started(session_id, await api.workflows.retry(session_id, retry))


async def open_door(api: Api, caller: Caller, session_id: str, **named: str | None) -> Door | None:
    """What the rows say about a session and the ids that an input names. Raises the refusal `not_found` for a foreign session."""
    telemetry.identify(tenant=caller.tenant, session_id=session_id, turn_id=named.get("turn_id"), call_id=named.get("call_id"))
    door = await api.reads.door(caller.tenant, session_id, **named)
    if door is not None:
        telemetry.identify(session_uid=door.session_uid)
        require_visible(caller, door.owner)
    return door


def sender(caller: Caller) -> dict[str, Any]:
    """The fields of an input that say who sends it."""
    return {"tenant": caller.tenant, "principal": caller.principal, "roles": caller.roles}


def said(door: Door | None) -> RowsSaid:
    """What the workflow is told about the rows."""
    if door is None:
        return RowsSaid()
    return RowsSaid(session_uid=str(door.session_uid), parent=door.parent_known, turn=door.turn_known, ended_turn=door.ended_turn)


def check_content(content: str | None) -> None:
    """Refuses a text that is too long."""
    if content is not None and len(content.encode()) > MAX_CONTENT:
        raise RequestRefused(413, f"`content` is over {MAX_CONTENT} bytes")


def check_profile(api: Api, profile: str | None) -> None:
    """Refuses a profile that this api does not know."""
    if profile is not None and profile not in api.profiles:
        raise Refusal("unknown_profile", f"there is no profile {profile!r}; there are {', '.join(sorted(api.profiles))}")


def check_binding(door: Door, body: ChatBody) -> None:
    """Refuses another profile or subject than the session is bound to (R52)."""
    bound = door.subject is not None
    if bound and (body.profile not in (None, door.profile) or body.subject not in (None, door.subject)):
        raise Refusal("binding_conflict", "the session is bound to another profile or subject")


async def _message(api: Api, caller: Caller, body: ChatBody, token: Token) -> Started:
    session_id, message_id = body.session_id or named(token, "session"), body.id or named(token, "message")
    files = files_of(body.attachments, api.settings.attachments)
    host_context, shown = host_files(body.host_context, api.settings.attachments)
    door = None
    if body.session_id is not None or token:
        door = await open_door(api, caller, session_id, message_id=message_id, parent_id=body.parent_id, turn_id=body.turn_id)
    if door is not None and door.message_known:
        return await _known(api, session_id, door, body, message_id)
    await check_day(api, caller, door)
    message = MessageInput(
        **sender(caller),
        rows=said(door),
        expected_revision=body.expected_revision,
        id=message_id,
        turn_id=body.turn_id or named(token, "turn"),
        content=body.content or "",
        digest=body.digest,
        parent_id=body.parent_id,
        profile=body.profile if door is not None else body.profile or api.settings.profile,
        subject=body.subject,
        host_context=host_context,
        attachments=(*files, *shown),
        config=None if body.config is None else TurnConfig.model_validate(body.config.model_dump(exclude_none=True)),
        when_busy=body.when_busy,
    )
    return _started(session_id, await api.workflows.message(session_id, message))


async def _known(api: Api, session_id: str, door: Door, body: ChatBody, message_id: str) -> Started:
    """A message id that the rows have: the same body names the first one's turn, another body is refused (R63)."""
    turn = None if door.message_turn_id is None else await api.reads.turn(door.session_uid, door.message_turn_id)
    if turn is None or door.message_digest != body.digest or door.message_turn_id is None:
        raise Refusal("duplicate_id", f"the session has another message with the id {message_id}")
    return Started(session_id, door.session_uid, door.message_turn_id, turn.message_id, turn.user_message_id, attempt=1)


async def _continue(api: Api, caller: Caller, body: ChatBody, seconds: float, token: Token, pause: PauseSaid | None) -> Started:
    assert body.session_id is not None and body.tool_call_id is not None
    session_id, call_id, turn_id = body.session_id, body.tool_call_id, body.turn_id or named(token, "turn")

    host_context, files = host_files(body.host_context, api.settings.attachments)
    if files:
        raise RequestRefused(422, "host_context.attachments: files come with messages, not with results")
    result_json = json_text(body.tool_result)
    result_digest = digest_of(body.tool_result) if token else ""

    async def offer(door: Door | None) -> TurnReceipt:
        if door is not None:
            check_binding(door, body)
        if door is not None and not token:
            _check_not_recorded(door, call_id)
        await check_day(api, caller, door)
        result = ContinuationInput(
            **sender(caller),
            rows=said(door),
            expected_revision=body.expected_revision,
            key=token,
            tool_call_id=call_id,
            result_json=result_json,
            result_digest=result_digest,
            tool_outcome=body.tool_outcome,
            turn_id=turn_id,
            host_context=host_context,
            pause=pause,
        )
        try:
            return await api.workflows.continuation(session_id, result)
        except Refusal as refusal:
            if token and door is not None and refusal.code in _BEHIND_RECORDED:
                _check_not_recorded(door, call_id)
            raise

    look = partial(open_door, api, caller, session_id, call_id=call_id, turn_id=turn_id)
    return _started(session_id, await behind_live_turn(api, look, offer, seconds))


async def behind_live_turn(
    api: Api, look: Callable[[], Awaitable[Door | None]], offer: Callable[[Door | None], Awaitable[_R]], seconds: float
) -> _R:
    """Offers an input again once the live turn has ended that it was sent back for (R73), for at most `seconds`.

    Raises what `look` and `offer` raise.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + seconds
    while True:
        door = await look()
        try:
            return await offer(door)
        except Refusal as refusal:
            if "later" not in refusal.facts or api.stopping.is_set():
                raise
            if clock() >= deadline:
                if _shows_end(door, refusal) or not _shows_end(await look(), refusal):
                    raise
                continue  # it has ended since: the input is not refused for what the workflow has yet to learn
            await _until_ended(api, door, refusal.facts["later"], deadline - clock())


def _shows_end(door: Door | None, refusal: Refusal) -> bool:
    """True if the rows show that the turn is over which an input was sent back for."""
    return door is not None and door.ended_turn == refusal.facts["later"]


async def _until_ended(api: Api, door: Door | None, turn_id: str, seconds: float) -> None:
    """Waits for a live turn to end without touching the workflow. Without rows yet, for a moment."""
    if door is None:
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
    else:
        await final_of(api, door.session_uid, TurnStart(turn_id), seconds)


_BEHIND_RECORDED = ("not_pending", "call_mismatch", "duplicate_id", "conversation_conflict", "busy")
"""What the workflow refuses only a result for that it doesn't know to be recorded, and that is no repeat of a keyed one."""


def _check_not_recorded(door: Door, call_id: str) -> None:
    """What the rows know of a result that the workflow may have forgotten: it stays as it is (R114)."""
    if door.call_status is not None:
        raise already_recorded(call_id, door.call_status)


def _started(session_id: str, receipt: TurnReceipt) -> Started:
    telemetry.identify(session_uid=receipt.session_uid, turn_id=receipt.turn_id, attempt=receipt.attempt)
    return Started(
        session_id, UUID(receipt.session_uid), receipt.turn_id, receipt.message_id, receipt.user_message_id, attempt=receipt.attempt
    )
