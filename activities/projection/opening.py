"""How a turn begins: the user's row, a host's result, superseded calls and `turn.started`, in one transaction."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pydantic_ai.messages import ModelRequest

from activities.db.session_tx import SessionTx, moment, sql
from activities.llm.translate import LIBRARY, dump, user_request
from activities.projection.calls import close_batch, record_host_result, supersede_open_calls
from activities.projection.display import announce_new
from activities.projection.files import shown_files
from activities.projection.placing import Row, grown, insert_row, open_branch, place_in, place_of, unknown_parent
from workflows.contracts.errors import Refusal
from workflows.contracts.json_text import json_text
from workflows.contracts.steps import NewMessage, Opening
from workflows.model.turn import TurnConfig, TurnRef
from workflows.rules.tree import place_under


@dataclass(frozen=True)
class Opened:
    """A turn that has begun. Where this very transaction wrote a user's message: what the model is given of it, and its parent's row."""

    turn: TurnRef
    request: str | None = None
    parent: Mapping[str, Any] | None = None


def is_open(tx: SessionTx, turn: TurnRef) -> bool:
    """True if this attempt of the turn has begun already: the opening is being repeated."""
    return tx.turn_attempt is not None and tx.turn_attempt >= turn.attempt


async def open_turn(tx: SessionTx, turn: TurnRef, step: int, opening: Opening, profile: str, config: TurnConfig | None) -> Opened:
    """Writes what a turn opens with; a repeat writes nothing. Answers the turn with the assistant message that it writes to.

    Raises Refusal if the rows know better than the workflow did; the transaction is then to be given up.
    """
    if opening.steering:
        turn = await steering_turn(tx, turn, profile)
    if is_open(tx, turn):
        return Opened(turn)
    opened = Opened(turn)
    at = moment(turn.accepted_at)
    if opening.message and tx.waiting:
        await supersede_open_calls(tx, at)
    place = await _place_of_message(tx, turn, opening.message) if opening.message else None
    await _turn_row(tx, turn, profile, config)
    await tx.announce("turn.started", turn.turn_id, at, {"kind": turn.kind, "message_id": turn.message_id})
    if opening.message:
        opened = await _user_message(tx, turn, opening.message, profile, place)
    if opening.result:
        await record_host_result(tx, turn.turn_id, opening.result, at)
        await close_batch(tx)
    await _host_context(tx, opening.message.host_context if opening.message else opening.host_context, turn)
    if opening.retry:
        await _take_back(tx, turn, step)
    tx.change(at, revision=opening.revision, turn_number=turn.number, active_leaf_id=turn.message_id)
    return opened


async def steering_turn(tx: SessionTx, turn: TurnRef, profile: str) -> TurnRef:
    """Where pending steering gets a turn of its own: the last assistant message, or a new one where that can't be extended (R145)."""
    if is_open(tx, turn):
        row = await sql.turn_so_far(tx.conn, session_uid=tx.uid, turn_id=turn.turn_id)
        return turn.model_copy(update={"message_id": row["message_id"]})
    if not [row async for row in sql.pending_steering(tx.conn, session_uid=tx.uid, profile=profile)]:
        raise Refusal("not_pending", "an earlier turn consumed the steering")
    leaf = await sql.leaf_for_steering(tx.conn, session_uid=tx.uid, message_id=tx.active_leaf_id)
    if leaf and leaf["extendable"]:
        return turn.model_copy(update={"message_id": leaf["id"]})
    at = moment(turn.accepted_at)
    parent = await place_of(tx, tx.active_leaf_id) if tx.active_leaf_id else None
    place = await grown(tx, parent, 1)
    counts = (parent.count_all, parent.count_user, parent.count_assistant) if parent else (0, 0, 0)
    await insert_row(tx, Row(turn.message_id, tx.active_leaf_id, "assistant", turn_id=turn.turn_id, profile=profile), place, counts, at)
    tx.change(at, message_count=tx.message_count + 1)
    return turn


async def _place_of_message(tx: SessionTx, turn: TurnRef, message: NewMessage) -> Mapping[str, Any] | None:
    """The parent's row, None for a first message. The backstop behind the api's and the workflow's checks of ids and parent."""
    found = await sql.place_message(tx.conn, session_uid=tx.uid, message_id=message.id, turn_id=turn.turn_id, parent_id=message.parent_id)
    if found["message_taken"] or found["turn_taken"]:
        raise Refusal("duplicate_id", f"{message.id if found['message_taken'] else turn.turn_id!r} is in use in this session already")
    if message.parent_id is None and found["rooted"]:
        raise Refusal("unknown_parent", "the session has a first message already; name the parent")
    if message.parent_id is not None and found["id"] is None:
        raise unknown_parent(message.parent_id)
    return found if message.parent_id is not None else None


async def _turn_row(tx: SessionTx, turn: TurnRef, profile: str, config: TurnConfig | None) -> None:
    at = moment(turn.accepted_at)
    if turn.attempt > 1:
        await sql.restart_turn(tx.conn, session_uid=tx.uid, turn_id=turn.turn_id, attempt=turn.attempt, accepted_at=at)
        return
    await sql.insert_turn(
        tx.conn,
        session_uid=tx.uid,
        turn_id=turn.turn_id,
        number=turn.number,
        kind=turn.kind,
        message_id=turn.message_id,
        user_message_id=turn.user_message_id,
        profile=profile,
        config=config.model_dump_json(exclude_none=True) if config else None,
        accepted_at=at,
    )


async def _user_message(tx: SessionTx, turn: TurnRef, message: NewMessage, profile: str, row: Mapping[str, Any] | None) -> Opened:
    """The user's row under its parent, and the assistant's empty row under it."""
    at = moment(turn.accepted_at)
    parent = place_in(row) if row else None
    place = place_under(parent)
    if place.opens_branch:
        await open_branch(tx, place, 2)
    counts = (parent.count_all + 1, parent.count_user + 1, parent.count_assistant) if parent else (1, 1, 0)
    request = dump(await _said(tx, turn, message))
    files = shown_files(message.attachments)
    change, _ = tx.next_change(), tx.next_change()
    await sql.insert_exchange(
        tx.conn,
        session_uid=tx.uid,
        branch=place.branch,
        depth=place.depth,
        message_id=message.id,
        parent_id=message.parent_id,
        content=message.content,
        attachments=files,
        digest=message.digest,
        answer_id=turn.message_id,
        count_all=counts[0],
        count_user=counts[1],
        count_assistant=counts[2],
        turn_id=turn.turn_id,
        attempt=turn.attempt,
        profile=profile,
        change=change,
        at=at,
        body=request,
        library=LIBRARY,
    )
    row_shown = {"id": message.id, "parent_id": message.parent_id, "role": "user", "content": message.content, "turn_id": turn.turn_id}
    await announce_new(tx, row_shown | {"profile": profile, "attachments": files}, turn.turn_id, at)
    tx.change(at, message_count=tx.message_count + 2)
    return Opened(turn, request, row)


async def _said(tx: SessionTx, turn: TurnRef, message: NewMessage) -> ModelRequest:
    """What the model is given of a message. The last host context is used again where it brings none."""
    context, said_at = message.host_context, None
    if context is None and tx.host_context_known:
        last = await sql.last_host_context(tx.conn, session_uid=tx.uid)
        context = json.loads(last["host_context"])
        said_at = min(last["host_context_at"], _captured(context) or last["host_context_at"])
    return user_request(message.content, context, turn.accepted_at, files=message.attachments, said_at=said_at)


def _captured(context: Mapping[str, Any] | None) -> datetime | None:
    """When the host looked, if it says so in a way that can be read."""
    try:
        return moment(str((context or {}).get("captured_at"))).astimezone(UTC)
    except ValueError:
        return None


async def _host_context(tx: SessionTx, host_context: dict[str, object] | None, turn: TurnRef) -> None:
    if host_context is not None:
        tx.host_context_known = True
        await sql.store_host_context(tx.conn, session_uid=tx.uid, host_context=json_text(host_context), at=moment(turn.accepted_at))


async def _take_back(tx: SessionTx, turn: TurnRef, step: int) -> None:
    """A retry starts the failed step again: what it had shown and kept is taken back, and readers are told to truncate."""
    at = moment(turn.accepted_at)
    key = {"session_uid": tx.uid, "message_id": turn.message_id, "turn_id": turn.turn_id, "step": step}
    dropped = [row async for row in sql.drop_step_segments(tx.conn, **key)]
    await sql.drop_step_model_messages(tx.conn, **key)
    if dropped:
        await sql.rewrite_content(tx.conn, session_uid=tx.uid, message_id=turn.message_id, at=at)
        await sql.rewind_turn_content(tx.conn, session_uid=tx.uid, turn_id=turn.turn_id)
        segments = [{"segment": position, "offset": 0} for position in sorted(row["position"] for row in dropped)]
        await tx.announce("step.restarted", turn.turn_id, at, {"segments": segments})
    await sql.touch_message(tx.conn, session_uid=tx.uid, id=turn.message_id, change=tx.next_change(), at=at)
