"""Writes on a session that are no turns: cards, changes of its fields, cancel, repair, deletion."""

from functools import partial
from typing import Any

from pydantic_core import to_jsonable_python

from activities.db.reads import Door
from api.answers import CancelAnswer, ErasureBegun, RepairAnswer, SessionView
from api.deps import Api
from api.errors import not_found
from api.idempotency import Done, Token, named
from api.turns import behind_live_turn, check_content, check_profile, open_door, said, sender
from api.write_bodies import AmendBody, CancelBody, CardBody, ChangeBody
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import AmendInput, CancelInput, CardInput, CloseInput, RepairInput, RepairReceipt
from workflows.model.session import Caller


async def post_card(api: Api, caller: Caller, session_id: str, body: CardBody, token: Token) -> Done[dict[str, Any]]:
    """Posts a host card and answers its row. The first input of a session makes it (R173)."""
    check_content(body.content)
    check_profile(api, body.profile)
    card_id = body.id or named(token, "card")
    door = await open_door(api, caller, session_id, message_id=card_id)
    if door is None or not door.message_known:
        card = CardInput(
            **sender(caller),
            rows=said(door),
            expected_revision=body.expected_revision,
            id=card_id,
            segments=[segment.model_dump(mode="json", exclude_unset=True) for segment in body.segments],
            content=body.content,
            digest=body.digest,
            profile=body.profile if door is not None else body.profile or api.settings.profile,
            subject=body.subject,
        )
        receipt = await api.workflows.card(session_id, card)
        door = await open_door(api, caller, session_id, message_id=card_id)
        if door is not None and str(door.session_uid) != receipt.session_uid:
            raise not_found()
    elif door.message_digest != body.digest:
        raise Refusal("duplicate_id", f"the session has another message with the id {card_id}")
    row = None if door is None else await api.messages.one(door.session_uid, card_id)
    if door is None or row is None:
        raise not_found()
    shown: dict[str, Any] = to_jsonable_python(row)
    return door.session_uid, shown


async def amend(api: Api, caller: Caller, session_id: str, body: AmendBody, token: Token) -> Done[SessionView]:
    """Changes title, owner or active leaf, and answers the session as it then is."""
    door = await open_door(api, caller, session_id)
    if door is not None and "owner_id" in body.named and not caller.is_admin:
        raise Refusal("forbidden", "only an admin can change the owner of a session")
    change = AmendInput(
        **sender(caller),
        rows=said(door),
        expected_revision=body.expected_revision,
        key=token,
        fields=body.named,
        title=body.title,
        owner_id=body.owner_id,
        active_leaf_id=body.active_leaf_id,
    )
    receipt = await api.workflows.amend(session_id, change)
    session = await api.reads.session(caller.tenant, session_id)
    if session is None or str(session.session_uid) != receipt.session_uid:
        raise not_found()
    return session.session_uid, SessionView.of_detail(session)


async def close(api: Api, caller: Caller, session_id: str, expected: ChangeBody, token: Token) -> Done[ErasureBegun]:
    """Deletes a session: from the answer on it is not readable, and its histories are being removed. The answer outlives the session."""
    door = await open_door(api, caller, session_id)
    end = CloseInput(**sender(caller), rows=said(door), key=token, expected_revision=expected.expected_revision)
    receipt = await api.workflows.close(session_id, end)
    return None, ErasureBegun(erasure_id=receipt.session_uid, status="running")


async def cancel(api: Api, caller: Caller, session_id: str, body: CancelBody, token: Token) -> Done[CancelAnswer]:
    """Ends the live turn, or the named one whenever it comes."""
    door = await open_door(api, caller, session_id, turn_id=body.turn_id)
    wish = CancelInput(**sender(caller), rows=said(door), key=token, turn_id=body.turn_id)
    receipt = await api.workflows.cancel(session_id, wish)
    answer = CancelAnswer(cancel_requested=receipt.cancel_requested, turn_id=receipt.turn_id)
    return None if door is None else door.session_uid, answer


async def repair(api: Api, caller: Caller, session_id: str, body: ChangeBody, token: Token) -> Done[RepairAnswer]:
    """Resolves the pending action and every open call as `unknown`, once the live turn has ended."""

    async def offer(door: Door | None) -> Done[RepairReceipt]:
        wish = RepairInput(**sender(caller), rows=said(door), expected_revision=body.expected_revision, key=token)
        return None if door is None else door.session_uid, await api.workflows.repair(session_id, wish)

    session_uid, receipt = await behind_live_turn(api, partial(open_door, api, caller, session_id), offer, api.settings.api.wait_seconds)
    return session_uid, RepairAnswer(
        session_id=session_id, cleared_pending=receipt.cleared_pending, repaired_calls=list(receipt.repaired_calls)
    )
