"""What becomes of tool calls: recorded once, superseded, settled; and what the model is told of them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import asyncpg
from pydantic_ai.messages import ModelRequest

from activities.db.session_tx import SessionTx, sql
from activities.llm.translate import LIBRARY, RecordedCall, dump, tool_returns
from activities.projection.display import announce_settled
from activities.projection.pending import named_first, pending_action, pending_calls
from workflows.contracts.errors import Refusal
from workflows.model.call import CallResult


@dataclass(frozen=True)
class Verdict:
    """The result of a call. `output` is JSON text; `model_text` what the model reads, None: the output itself."""

    outcome: str
    status: str | None
    output: str | None = None
    model_text: str | None = None
    duration_ms: int | None = None


SUPERSEDED = Verdict("interrupted", "superseded")
CANCELLED = Verdict("interrupted", "cancelled")
UNKNOWN = Verdict("interrupted", "unknown")
STATUS_OF_HOST = {"success": None, "failed": "failed", "denied": "denied"}


async def record(tx: SessionTx, call_id: str, verdict: Verdict, at: datetime) -> asyncpg.Record | None:
    """Records a result once. None: the call has one, and it stays."""
    row: asyncpg.Record | None = await sql.record_call(
        tx.conn,
        session_uid=tx.uid,
        call_id=call_id,
        outcome=verdict.outcome,
        status=verdict.status,
        output=verdict.output,
        model_text=verdict.model_text,
        duration_ms=verdict.duration_ms,
        at=at,
    )
    return row


async def announce_result(tx: SessionTx, turn_id: str, call_id: str, verdict: Verdict, at: datetime) -> None:
    """`tool.result`, or `tool.error` for whatever is not a success."""
    data: dict[str, Any] = {"call_id": call_id, "duration_ms": verdict.duration_ms}
    value = json.loads(verdict.output) if verdict.output is not None else verdict.model_text
    if verdict.outcome == "success":
        await tx.announce("tool.result", turn_id, at, data | {"output": value})
    else:
        status = {"status": verdict.status} if verdict.status else {}
        await tx.announce("tool.error", turn_id, at, data | {"error": value, "outcome": verdict.outcome} | status)


async def record_host_result(tx: SessionTx, turn_id: str, result: CallResult, at: datetime) -> None:
    """A host's result. Raises Refusal `already_recorded` if the call has one: the backstop behind the workflow (R114)."""
    found = await sql.find_call(tx.conn, session_uid=tx.uid, call_id=result.call_id)
    if found is None:
        raise Refusal("not_pending", f"there is no call {result.call_id!r} in this session")
    waited = round((at - found["requested_at"]).total_seconds() * 1000)
    if result.outcome == "expired":
        verdict = Verdict("interrupted", "unknown", duration_ms=max(0, waited))
        await _announce_expired(tx, turn_id, result.call_id, at)
    else:
        verdict = Verdict(result.outcome, STATUS_OF_HOST[result.outcome], result.output, duration_ms=max(0, waited))
    if await record(tx, result.call_id, verdict, at) is None:
        status = found["status"] or "completed"
        raise Refusal("already_recorded", f"call {result.call_id!r} is recorded already, with status {status}", recorded_status=status)
    await announce_result(tx, turn_id, result.call_id, verdict, at)
    await sql.touch_message(tx.conn, session_uid=tx.uid, id=found["message_id"], change=tx.next_change(), at=at)


async def _announce_expired(tx: SessionTx, turn_id: str, call_id: str, at: datetime) -> None:
    """`host_action.expired`: what was waited for until now; the call whose time is over is shown first, like one that is pending."""
    batch, waiting = await pending_calls(tx)
    if batch and waiting:
        await tx.announce("host_action.expired", turn_id, at, {"pending_action": pending_action(batch, named_first(waiting, call_id))})


async def close_batch(tx: SessionTx) -> list[str]:
    """No host action is pending any more. Answers the messages whose calls were waited for."""
    return [row["message_id"] async for row in sql.close_batches(tx.conn, session_uid=tx.uid)]


async def settle_open_calls(tx: SessionTx, verdict: Verdict, at: datetime, message_id: str | None = None) -> list[asyncpg.Record]:
    """Gives every open call (of one message, if named) the same verdict; answers the calls that were open."""
    settled = []
    for call in [row async for row in sql.open_calls(tx.conn, session_uid=tx.uid)]:
        if message_id is None or call["message_id"] == message_id:
            await record(tx, call["call_id"], verdict, at)
            settled.append(call)
    return settled


async def supersede_open_calls(tx: SessionTx, at: datetime) -> list[str]:
    """A user message came first: the whole batch is `superseded`, in the transaction that adds the user's row (R122).

    Answers the ids of the calls that were open.
    """
    waited_for = await close_batch(tx)
    settled = await settle_open_calls(tx, SUPERSEDED, at)
    await conclude(tx, [*waited_for, *(call["message_id"] for call in settled)], at)
    return [call["call_id"] for call in settled]


async def conclude(tx: SessionTx, message_ids: list[str], at: datetime) -> None:
    """Messages whose calls wait for nothing any more: the model is told of their results, also of those that others recorded (R109)."""
    for message_id in dict.fromkeys(message_ids):
        await answer_last_response(tx, message_id)
        await sql.touch_message(tx.conn, session_uid=tx.uid, id=message_id, change=tx.next_change(), at=at)
        await announce_settled(tx, message_id, None, at)


def recorded(rows: Iterable[asyncpg.Record]) -> list[RecordedCall]:
    """Finished calls as the model is told of them, in the model's order."""
    return [
        RecordedCall(
            call_id=row["call_id"],
            tool_name=row["tool_name"],
            output_json=row["output"],
            outcome=row["outcome"],
            status=row["status"],
            model_text=row["model_text"],
        )
        for row in rows
    ]


def results_request(rows: Sequence[asyncpg.Record], limit: int, host_context: Mapping[str, Any] | None = None) -> ModelRequest:
    """The request that tells the model of a response's results, each of at most `limit` characters; its time is that of the last one."""
    at = max(row["recorded_at"] for row in rows).isoformat()
    return tool_returns(recorded(rows), at, host_context=host_context, limit=limit)


async def unanswered_calls(tx: SessionTx, tail: Mapping[str, Any]) -> list[asyncpg.Record]:
    """The calls of a message's last response if the model has not been given their results yet."""
    if tail["last_kind"] != "response":
        return []
    return [
        row
        async for row in sql.calls_of_step(
            tx.conn,
            session_uid=tx.uid,
            message_id=tail["id"],
            turn_id=tail["last_turn_id"],
            attempt=tail["last_attempt"],
            step=tail["last_step"],
        )
    ]


async def answer_last_response(tx: SessionTx, message_id: str) -> None:
    """Stores the results of a message's last response as the request that tells the model of them, once all are recorded."""
    tail = await sql.message_tail(tx.conn, session_uid=tx.uid, message_id=message_id)
    rows = await unanswered_calls(tx, tail)
    if not rows or any(row["state"] == "open" for row in rows):
        return
    await sql.insert_model_messages(
        tx.conn,
        session_uid=tx.uid,
        message_id=message_id,
        turn_id=tail["last_turn_id"],
        attempt=tail["last_attempt"],
        step=tail["last_step"],
        positions=[tail["next_model_message"]],
        kinds=["request"],
        bodies=[dump(results_request(rows, tx.tool_text_limit))],
        library=LIBRARY,
    )
