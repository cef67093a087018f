"""Pause tokens: with one, the owner of a session answers one host call later, from a link or a button, knowing neither of the two.

They are in no row. Each is made where a pending call is shown, and only for the session's owner. What was answered or streamed shows the same
token whenever it is shown again: it is good from the moment when the call was handed over. Reads of a session and the inbox make newer ones.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import floor
from typing import Any, Literal
from uuid import UUID

from activities.db.events import Event
from activities.db.pauses import SHOWN_IN, Pause, ids_of
from activities.db.reads import PendingAction
from api.deps import Api
from workflows.contracts.json_text import json_text
from workflows.model.session import Caller

PURPOSE: Literal["pause token"] = "pause token"


async def add_tokens(api: Api, caller: Caller, session_uid: UUID, pending: dict[str, Any], ended_at: datetime) -> None:
    """Puts the tokens into what a turn's final answer asks the host for. Raises ServiceUnavailable."""
    _add(api, caller, pending, await api.pauses.of(session_uid, ids_of(pending)), ended_at)


def event_with_tokens(api: Api, caller: Caller, event: Event) -> Event:
    """An event with the tokens of what it asks the host for."""
    if not event.pauses:
        return event
    data = json.loads(event.data)
    _add(api, caller, data[SHOWN_IN[event.type]], event.pauses, event.at)
    return replace(event, data=json_text(data))


def fresh_tokens(api: Api, caller: Caller, action: PendingAction) -> dict[str, str]:
    """Tokens of what a session waits for, by call id.

    Each is good for half of the configured time at least. They change with every half, not with every read.
    """
    half = timedelta(seconds=api.settings.pause_token_ttl_seconds) / 2
    halves = max(0, floor((datetime.now(UTC) - action.opened_at) / half))
    until = action.opened_at + (halves + 2) * half
    tokens = {}
    for call in action.calls if action.handover == "all" else action.calls[:1]:
        if call.token_id is not None and action.owner == caller.principal:
            pause = Pause(caller.tenant, action.session_uid, action.owner, call.call_id, call.token_id, call.digest, action.handover)
            tokens[call.call_id] = _token(api, pause, until)
    return tokens


def _add(api: Api, caller: Caller, pending: dict[str, Any], pauses: Mapping[str, Pause], since: datetime) -> None:
    """Puts tokens into a pending call and into those queued behind it that may be answered now."""
    until = since + timedelta(seconds=api.settings.pause_token_ttl_seconds)
    for call_id, call in zip(ids_of(pending), (pending, *pending.get("queued", ())), strict=True):
        pause = pauses.get(call_id)
        if pause is not None and _is_owner(caller, pause) and (call is pending or pause.handover == "all"):
            call["pause_token"] = _token(api, pause, until)


def _is_owner(caller: Caller, pause: Pause) -> bool:
    return (caller.tenant, caller.principal) == (pause.tenant, pause.owner)


def _token(api: Api, pause: Pause, until: datetime) -> str:
    said = {
        "jti": str(pause.token_id),
        "tenant": pause.tenant,
        "sub": pause.owner,
        "session": str(pause.session_uid),
        "call": pause.call_id,
        "digest": pause.digest,
    }
    return api.keyring.sign(PURPOSE, said, until)
