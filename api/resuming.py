"""Redeems pause tokens: a continuation by whoever holds the token and is the session's owner."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from activities.db.pauses import PausedCall
from api.deps import Api
from api.errors import RequestRefused, not_found
from api.idempotency import Token
from api.pause_tokens import PURPOSE
from api.schemas import ChatBody
from api.signing import TokenExpired, TokenInvalid
from api.turns import Started, begin
from api.write_bodies import ResumeBody
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import PauseSaid
from workflows.model.session import Caller


@dataclass(frozen=True, slots=True)
class Opened:
    """A token that was signed here for the one who sends it. Whether its time is over and its call still open is not known yet."""

    token: str
    session_uid: UUID
    call_id: str
    token_id: str
    said: PauseSaid

    @property
    def names(self) -> str:
        """What the token is for, the same for every token of its call."""
        return f"{self.session_uid} {self.call_id}"


def open_token(api: Api, caller: Caller, token: str) -> Opened:
    """Raises RequestRefused (401) for what is no token, and the refusal `forbidden` for one of somebody else (S48)."""
    claims = _claims(api, token, expired=True)
    if (claims["tenant"], claims["sub"]) != (caller.tenant, caller.principal):
        raise _of_another()
    said = PauseSaid(session_uid=claims["session"], owner=claims["sub"], arguments_digest=claims["digest"])
    return Opened(token, UUID(claims["session"]), claims["call"], claims["jti"], said)


async def paused(api: Api, caller: Caller, opened: Opened) -> PausedCall:
    """What the rows have of the token's call. Raises the refusals `not_found` for a session that is gone and `forbidden` for somebody else's."""
    found = await api.pauses.call(opened.session_uid, opened.call_id)
    if found is None:
        raise not_found()
    if found.owner != caller.principal:
        raise _of_another()
    return found


async def redeem(api: Api, caller: Caller, opened: Opened, found: PausedCall, body: ResumeBody, seconds: float, key: Token) -> Started:
    """Submits the result. Everything is checked before anything is spent, and what must be decided once the session's workflow decides.

    Raises as `begin` does, RequestRefused (410) for a token whose time is over, and the refusal `not_found` for a call that is gone.
    """
    _claims(api, opened.token)
    if found.token_id is None:
        raise not_found("call")
    if (str(found.token_id), found.digest) != (opened.token_id, opened.said.arguments_digest):
        raise Refusal("call_mismatch", "the call is not the one that this token was made for; read the session for what it waits for")
    result = {name: getattr(body, name) for name in body.model_fields_set}
    said = ChatBody(session_id=found.session_id, tool_call_id=opened.call_id, **result)
    return await begin(api, caller, said, seconds, key, opened.said)


def _claims(api: Api, token: str, *, expired: bool = False) -> dict[str, Any]:
    try:
        return api.keyring.verify(PURPOSE, token, expired=expired)
    except TokenExpired as error:
        raise RequestRefused(410, f"{error}; the session and the inbox show a newer one", "expired_token") from error
    except TokenInvalid as error:
        raise RequestRefused(401, str(error), "invalid_token") from error


def _of_another() -> Refusal:
    return Refusal("forbidden", "this pause token was made for another principal than the one who sends it")
