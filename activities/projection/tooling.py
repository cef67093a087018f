"""A server tool's result, and the host's turn where it was the last one."""

import asyncpg

from activities.db.session_tx import SessionTx, moment, sql
from activities.projection.calls import Verdict, announce_result, record
from activities.projection.ending import finish_turn, open_batch
from workflows.contracts.tools import RunTool, ToolDone


def tool_done(row: asyncpg.Record) -> ToolDone:
    """What became of a call, from its row."""
    return ToolDone(
        call_id=row["call_id"],
        output=row["output"] or "",
        outcome=row["outcome"],
        status=row["status"],
        at=row["recorded_at"].isoformat(),
        duration_ms=row["duration_ms"],
    )


async def record_tool(tx: SessionTx, call: RunTool, verdict: Verdict, at: str) -> bool | None:
    """Records a server tool's result. True: it was the last one beside open host calls, the host is asked and the turn is over.

    None: the call has a result already, and it stays.
    """
    turn, call_id = call.turn, call.call.call_id
    if await record(tx, call_id, verdict, moment(at)) is None:
        return None
    await announce_result(tx, turn.turn_id, call_id, verdict, moment(at))
    await sql.touch_message(tx.conn, session_uid=tx.uid, id=turn.message_id, change=tx.next_change(), at=moment(at))
    return await _hand_over_if_last(tx, call, at)


async def _hand_over_if_last(tx: SessionTx, call: RunTool, at: str) -> bool:
    turn = call.turn
    where = {"message_id": turn.message_id, "turn_id": turn.turn_id, "attempt": turn.attempt, "step": call.step}
    rows = [row async for row in sql.calls_of_step(tx.conn, session_uid=tx.uid, **where)]
    open_categories = {row["category"] for row in rows if row["state"] == "open"}
    if open_categories != {"host"}:
        return False
    handover = await sql.handover_of_step(tx.conn, session_uid=tx.uid, turn_id=turn.turn_id, attempt=turn.attempt, step=call.step)
    await open_batch(tx, turn.message_id, turn.turn_id, call.step, handover or "one", moment(at))
    await finish_turn(tx, turn.turn_id, "waiting", None, call.revision, moment(at))
    return True
