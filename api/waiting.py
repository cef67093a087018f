"""Waits for a turn's final answer: the feed says when to look, the row says what it is. No workflow is asked."""

import asyncio
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from activities.db.events import TurnStart
from activities.db.feed import Committed, Reread, Subscription
from activities.db.reads import TurnOutcome
from api.deps import Api
from api.errors import not_found
from workflows.contracts.errors import Refusal, ServiceUnavailable

LOOK_ANYWAY_SECONDS = 10.0
"""How often the row is read without having been called: a backstop, not the way."""


async def deleted_meanwhile(api: Api, tenant: str, session_id: str, session_uid: UUID, error: dict[str, Any] | None) -> bool:
    """Whether a turn was cancelled because its session is being deleted: the rows of the turn are about to go, and who waited learns that.

    `error` is that of its final answer. Only for a cancelled turn the workflow is asked; one that can't be asked now says nothing.
    Raises the refusal `not_found` too.
    """
    if error is None or error["type"] != "cancelled":
        return False
    try:
        head = await api.workflows.head(tenant, session_id)
    except ServiceUnavailable:
        return False
    return head.closing or head.session_uid != str(session_uid)


@dataclass(frozen=True, slots=True)
class Ended:
    """The final answer of a turn, as JSON text, when it was given, and whose the session is now."""

    final: str
    at: datetime
    owner: str | None


async def final_of(api: Api, session_uid: UUID, turn: TurnStart, seconds: float) -> Ended | None:
    """How that attempt of a turn or a later one ended; None if it has not in `seconds`.

    While Postgres is away it goes on waiting, as the turn does. Raises the refusal `not_found` if the session was deleted, and the
    one that the rows made of an input which the workflow had accepted.
    """
    deadline = asyncio.get_running_loop().time() + seconds
    try:
        async with api.feed.subscribe(str(session_uid)) as subscription:
            return await _await_final(api, session_uid, turn, subscription, deadline)
    except ServiceUnavailable:
        return None


async def _await_final(api: Api, session_uid: UUID, turn: TurnStart, subscription: Subscription, deadline: float) -> Ended | None:
    clock = asyncio.get_running_loop().time
    seen = False
    while True:
        outcome = await _look(api, session_uid, turn.turn_id)
        if outcome is not None and outcome.final is not None and outcome.ended_at is not None and outcome.attempt >= turn.attempt:
            return Ended(outcome.final, outcome.ended_at, outcome.owner)
        if outcome is None:
            await _check_coming(api, session_uid, turn.turn_id, seen)
        seen = seen or outcome is not None
        if clock() >= deadline or api.stopping.is_set():
            return None
        seen = await _called(subscription, min(deadline, clock() + LOOK_ANYWAY_SECONDS)) or seen


async def _called(subscription: Subscription, until: float) -> bool:
    """Waits for what a turn's end may be among. True if the session had rows meanwhile, or they went."""
    clock = asyncio.get_running_loop().time
    had_rows = False
    while (left := until - clock()) > 0:
        match await subscription.next(left):
            case Committed(ends=ends):
                had_rows = True
                if ends:
                    break
            case Reread():
                break
            case _:
                pass
    return had_rows


async def _look(api: Api, session_uid: UUID, turn_id: str) -> TurnOutcome | None:
    try:
        return await api.reads.turn(session_uid, turn_id)
    except ServiceUnavailable:
        return None


async def _check_coming(api: Api, session_uid: UUID, turn_id: str, seen: bool) -> None:
    """Raises Refusal for a turn that will not come (any more)."""
    if seen and not await _exists(api, session_uid):
        raise not_found()
    try:
        refused = await api.reads.refusal(session_uid, turn_id)
    except ServiceUnavailable:
        return
    if refused is not None:
        code, words = refused
        raise not_found() if words is None else Refusal.named(code, words)


async def _exists(api: Api, session_uid: UUID) -> bool:
    try:
        return await api.log.owned(session_uid) is not None
    except ServiceUnavailable:
        return True
