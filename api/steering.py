"""Steering: words that join the live turn, wait behind a pending action, or get a turn of their own."""

from dataclasses import dataclass
from typing import Literal
from uuid import UUID

from activities.db.events import TurnStart
from activities.db.reads import Door
from api.budgets import check_day
from api.deps import Api
from api.errors import not_found
from api.idempotency import Token, named
from api.schemas import ChatBody
from api.turns import check_binding, check_content, check_profile, open_door, said, sender
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import SteerInput
from workflows.model.session import Caller


@dataclass(frozen=True, slots=True)
class Steered:
    """Accepted steering. `turn_id` is the turn of its own, if it was promoted."""

    session_id: str
    session_uid: UUID
    steering_id: str
    delivery: Literal["queued", "promoted"]
    turn_id: str | None

    @property
    def begins(self) -> TurnStart | None:
        """The point in the session's event log just before its own turn."""
        return None if self.turn_id is None else TurnStart(self.turn_id)


async def steer(api: Api, caller: Caller, body: ChatBody, token: Token) -> Steered:
    """Submits steering. It never begins a session (R155).

    Raises RequestRefused, Refusal and ServiceUnavailable; nothing has happened then, unless the last says that it may have.
    """
    check_content(body.content)
    check_profile(api, body.profile)
    if body.session_id is None:
        raise not_found()
    steering_id = body.id or named(token, "steering")
    door = await open_door(api, caller, body.session_id, message_id=steering_id, turn_id=body.turn_id)
    if door is not None:
        if known := await _known(api, door, body, body.session_id, steering_id):
            return known
        check_binding(door, body)
    await check_day(api, caller, door)
    words = SteerInput(
        **sender(caller),
        rows=said(door),
        expected_revision=body.expected_revision,
        id=steering_id,
        content=body.content or "",
        digest=body.digest,
        profile=body.profile,
        turn_id=body.turn_id or named(token, "turn"),
    )
    receipt = await api.workflows.steer(body.session_id, words)
    return Steered(body.session_id, UUID(receipt.session_uid), receipt.steering_id, receipt.delivery, receipt.turn_id)


async def _known(api: Api, door: Door, body: ChatBody, session_id: str, steering_id: str) -> Steered | None:
    """Steering that the rows have: the same body is answered as the first one was, another body is refused (R154).

    None: it is new, or its own turn may be about to begin, which the workflow knows.
    """
    known = await api.messages.steering(door.session_uid, steering_id)
    if known is None:
        if door.message_known:
            raise Refusal("duplicate_id", f"the session has a message with the id {steering_id}")
        if door.turn_known:
            raise Refusal("duplicate_id", f"the session has a turn with the id {body.turn_id}")
        return None
    if known.digest != body.digest:
        raise Refusal("duplicate_id", f"the session has other steering with the id {steering_id}")
    if known.promoted_turn_id is None and not known.delivered:
        return None
    delivery: Literal["queued", "promoted"] = "promoted" if known.promoted_turn_id else "queued"
    return Steered(session_id, door.session_uid, steering_id, delivery, known.promoted_turn_id)
