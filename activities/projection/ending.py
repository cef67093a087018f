"""How a turn ends: the pending action, `turn.final`, `turn.completed`, and where the session then stands."""

import json
from datetime import datetime
from typing import Any, Literal

import asyncpg

from activities.db.session_tx import SessionTx, sql
from activities.projection.calls import CANCELLED, answer_last_response, settle_open_calls
from activities.projection.display import announce_settled
from activities.projection.pending import pending_action, pending_calls, pending_tool_call
from workflows.contracts.json_text import json_text
from workflows.model.turn import TurnError, Usage

ENVELOPE = ("session_id", "turn_id")
"""What the stream puts on every event itself."""

Ending = Literal["completed", "waiting", "failed", "cancelled"]


def usage_json(usage: Usage) -> dict[str, Any]:
    """Usage as the HTTP API shows it."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "requests": usage.requests,
        "tool_calls": usage.tool_calls,
        "cost_usd": usage.cost_usd,
    }


def usage_of(text: str | None) -> Usage:
    """Usage as it is stored; none yet is zero."""
    return Usage.model_validate_json(text) if text else Usage()


async def open_batch(tx: SessionTx, message_id: str, turn_id: str, step: int, handover: str, at: datetime) -> None:
    """The host calls of a step begin to wait."""
    await sql.open_batch(tx.conn, session_uid=tx.uid, message_id=message_id, turn_id=turn_id, step=step, handover=handover, at=at)


async def _asked(tx: SessionTx, at: datetime) -> tuple[asyncpg.Record | None, list[asyncpg.Record]]:
    """What the host is asked for when the turn ends; deadlines begin."""
    batch, waiting = await pending_calls(tx)
    if not batch or not waiting:
        return batch, waiting
    asked = waiting if batch["handover"] == "all" else waiting[:1]
    if any(json.loads(row["options"]).get("deadline_seconds") is not None for row in asked):
        await sql.start_deadlines(tx.conn, session_uid=tx.uid, call_ids=[row["call_id"] for row in asked], at=at)
        return await pending_calls(tx)
    return batch, waiting


async def finish_turn(
    tx: SessionTx,
    turn_id: str,
    ending: Ending,
    error: TurnError | None,
    revision: int,
    at: datetime,
    *,
    row: asyncpg.Record | None = None,
    waiting: bool = True,
) -> None:
    """Ends a turn in the transaction that stored its last part: nothing is announced before it is committed (S33, S45).

    `row`: the turn as it stands, where the caller has just read it. `waiting` False: no host batch is open.
    """
    turn = row or await sql.turn_so_far(tx.conn, session_uid=tx.uid, turn_id=turn_id)
    if turn is None or turn["state"] != "running":
        return
    batch, calls = await _asked(tx, at) if waiting else (None, [])
    await announce_settled(tx, turn["message_id"], turn_id, at)
    if batch and calls:
        await tx.announce("host_action.pending", turn_id, at, {"pending_action": pending_action(batch, calls)})
    shown_error = error.model_dump() if error else None
    final = _final(tx, turn_id, turn, revision) | {"pending_tool_call": pending_tool_call(calls), "error": shown_error}
    await tx.announce("turn.final", turn_id, at, {name: value for name, value in final.items() if name not in ENVELOPE})
    if error:
        await tx.announce("turn.error", turn_id, at, {"error": shown_error})
    await tx.announce("turn.completed", turn_id, at, {})
    await sql.finish_turn(
        tx.conn,
        session_uid=tx.uid,
        turn_id=turn_id,
        state=ending,
        error=json_text(shown_error) if error else None,
        final=json_text(final),
        at=at,
    )
    tx.change(at, revision=max(revision, tx.revision))
    tx.slide(at)


def _final(tx: SessionTx, turn_id: str, turn: asyncpg.Record, revision: int) -> dict[str, Any]:
    """What a turn is answered with, its pending call and its error apart."""
    return {
        "session_id": tx.session_id,
        "user_message_id": turn["user_message_id"],
        "message_id": turn["message_id"],
        "turn_id": turn_id,
        "turn_number": turn["number"],
        "attempt": turn["attempt"],
        "revision": max(revision, tx.revision),
        "content": turn["content"],
        "model": turn["model"],
        "usage": usage_json(usage_of(turn["usage"])),
    }


async def end_early(tx: SessionTx, turn_id: str, message_id: str, error: TurnError, revision: int, at: datetime) -> None:
    """Ends a turn with an error: its calls without a result become `cancelled`, and the model is told so later."""
    await settle_open_calls(tx, CANCELLED, at, message_id)
    await answer_last_response(tx, message_id)
    await finish_turn(tx, turn_id, "cancelled" if error.type == "cancelled" else "failed", error, revision, at)
