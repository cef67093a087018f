"""What happens to a session without a model request: a result in the middle of a batch, repair, steering that arrives, new values of fields."""

import json

from activities.db.session_tx import SessionTx, moment, sql
from activities.projection.audit import note_act
from activities.projection.calls import UNKNOWN, close_batch, conclude, record_host_result, settle_open_calls, supersede_open_calls
from activities.projection.ending import finish_turn
from activities.projection.opening import is_open, open_turn
from activities.projection.pending import pending_calls
from workflows.contracts.errors import Refusal
from workflows.contracts.sessions import AmendSession
from workflows.contracts.steps import Opening
from workflows.contracts.turns import CallsRepaired, HandOver, NoteSteering, RepairCalls


async def hand_over(tx: SessionTx, step: HandOver) -> None:
    """Records a result in the middle of a batch and shows the next call (R124); a repeat writes nothing. Raises Refusal."""
    turn, at = step.turn, moment(step.turn.accepted_at)
    if is_open(tx, turn):
        return
    opening = Opening(revision=tx.revision, host_context=step.host_context)
    await open_turn(tx, turn, 0, opening, await _profile_of_batch(tx), None)
    await record_host_result(tx, turn.turn_id, step.result, at)
    await finish_turn(tx, turn.turn_id, "waiting", None, step.revision, at)


async def _profile_of_batch(tx: SessionTx) -> str:
    batch = await sql.current_batch(tx.conn, session_uid=tx.uid)
    if batch is None:
        raise Refusal("not_pending", "no host action is pending in this session")
    profile: str = batch["profile"]
    return profile


async def repair_calls(tx: SessionTx, repair: RepairCalls) -> CallsRepaired:
    """Resolves everything that is open as `unknown` (R137, R138). A repeat of this very write answers what it did."""
    at = moment(repair.at)
    if tx.revision == repair.revision:
        did = [row async for row in sql.repaired_calls(tx.conn, session_uid=tx.uid, at=at)]
        cleared = next((row["call_id"] for row in did if row["waited"]), None)
        return CallsRepaired(cleared_pending=cleared, repaired_calls=tuple(row["call_id"] for row in did), raised=True)
    _, waiting = await pending_calls(tx)
    waited_for = await close_batch(tx)
    settled = await settle_open_calls(tx, UNKNOWN, at)
    await conclude(tx, [*waited_for, *(call["message_id"] for call in settled)], at)
    if settled or waited_for:
        tx.change(at, revision=repair.revision)
    cleared = waiting[0]["call_id"] if waiting else None
    return CallsRepaired(
        cleared_pending=cleared, repaired_calls=tuple(call["call_id"] for call in settled), raised=bool(settled or waited_for)
    )


async def note_steering(tx: SessionTx, steering: NoteSteering) -> None:
    """Stores steering as pending. Twice is once."""
    change = tx.next_change()
    await sql.note_steering(
        tx.conn,
        session_uid=tx.uid,
        id=steering.id,
        number=steering.number or change,
        content=steering.content,
        profile=steering.profile,
        digest=steering.digest,
        own_turn_id=steering.own_turn_id,
        change=change,
        accepted_at=moment(steering.accepted_at),
    )


async def amend(tx: SessionTx, change: AmendSession) -> list[str]:
    """Writes new values of a session's fields; answers the calls that were superseded. Raises Refusal for a leaf that is no message."""
    at, superseded = moment(change.at), []
    if "active_leaf_id" in change.fields:
        if await sql.message_place(tx.conn, session_uid=tx.uid, message_id=change.active_leaf_id) is None:
            raise Refusal("not_found", f"there is no message {change.active_leaf_id!r} in this session")
        superseded = await supersede_open_calls(tx, at)
        tx.change(at, active_leaf_id=change.active_leaf_id, revision=change.revision)
    if "title" in change.fields:
        tx.change(at, title=change.title)
    if "owner_id" in change.fields:
        owners = {"before": tx.owner, "after": change.owner_id}
        await note_act(tx.conn, change.session, "owner_change", change.by, change.at, owners)
        tx.change(at, owner=change.owner_id)
        await sql.have_reread(tx.conn, note=json.dumps({"s": tx.uid, "r": 1}))
    return superseded
