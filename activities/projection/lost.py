"""Turns that end from outside their step: what it had streamed is kept, what it had called is over."""

import json
from collections.abc import Callable
from datetime import datetime

from activities.db.session_tx import LivePiece, SessionTx, moment, sql
from activities.llm.translate import LIBRARY, dump, partial_response
from activities.projection.describing import as_shown
from activities.projection.ending import end_early
from activities.projection.opening import open_turn
from activities.projection.tooling import tool_done
from workflows.contracts.steps import ShownSegment
from workflows.contracts.tools import ToolDone
from workflows.contracts.turns import EndTurn, TurnEnded
from workflows.model.turn import TurnError

Streamed = Callable[[int], list[LivePiece]]

LEFTOVER = TurnError.of("session_error", "the session's workflow was ended in the middle of this turn")


async def end_from_outside(tx: SessionTx, end: EndTurn, at: str, streamed: Streamed | None = None) -> TurnEnded:
    """Ends a turn that its step can't end. Answers what was kept: the partial model message, and what was shown of the step where that is more.
    `streamed`: what the step had streamed, from the place of its first segment on; by default what the rows have of it. Raises Refusal.
    """
    turn = end.turn
    if end.opening:
        turn = (await open_turn(tx, turn, end.step, end.opening, end.profile, end.config)).turn
    tail = await sql.message_tail(tx.conn, session_uid=tx.uid, message_id=turn.message_id)
    pieces = streamed(tail["next_segment"]) if streamed else await tx.fix_live_text(moment(at), stored=False)
    response = await _keep(tx, end.model_copy(update={"turn": turn}), at, pieces, tail["next_model_message"]) if pieces else ""
    await sql.set_message_error(
        tx.conn,
        session_uid=tx.uid,
        id=turn.message_id,
        error=end.error.model_dump_json(),
        change=tx.next_change(),
        at=moment(at),
    )
    await end_early(tx, turn.turn_id, turn.message_id, end.error, end.revision, moment(at))
    plain = len(pieces) == 1 and (pieces[0].segment, pieces[0].kind) == (tail["next_segment"], "text")
    kept = () if plain else as_shown([(piece.segment, piece.kind, piece.text) for piece in pieces])
    return TurnEnded(response=response, kept=kept, message_id=turn.message_id, at=at, expires_at=tx.expiry)


async def _keep(tx: SessionTx, end: EndTurn, at: str, pieces: list[LivePiece], position: int) -> str:
    """What a step had streamed when it was lost is kept: as segments for readers, as a partial answer for the model."""
    turn = end.turn
    where = {"session_uid": tx.uid, "message_id": turn.message_id, "turn_id": turn.turn_id, "attempt": turn.attempt, "step": end.step}
    await sql.insert_segments(
        tx.conn,
        **where,
        positions=[piece.segment for piece in pieces],
        kinds=[piece.kind for piece in pieces],
        texts=[piece.text for piece in pieces],
    )
    await sql.rewrite_content(tx.conn, session_uid=tx.uid, message_id=turn.message_id, at=moment(at))
    await sql.rewind_turn_content(tx.conn, session_uid=tx.uid, turn_id=turn.turn_id)
    text = "".join(piece.text for piece in pieces if piece.kind == "text")
    if not text:
        return ""
    response = dump(partial_response(text, at))
    await sql.insert_model_messages(tx.conn, **where, positions=[position], kinds=["response"], bodies=[response], library=LIBRARY)
    return response


async def over_before(tx: SessionTx, end: EndTurn) -> TurnEnded:
    """The turn ended without the workflow's knowledge: by its step, whose result was lost, or by an earlier try to end it."""
    key = {"session_uid": tx.uid, "turn_id": end.turn.turn_id}
    closed = await closed_before(tx, end)
    left = await sql.left_of_step(tx.conn, **key, attempt=end.turn.attempt, step=end.step)
    segments = json.loads(left["segments"]) if left and not closed else []
    waiting = tx.turn_state == "waiting" and tx.turn_attempt == end.turn.attempt
    return TurnEnded(
        response="" if closed or left is None else left["response"] or "",
        kept=tuple(ShownSegment.model_validate(one) for one in segments),
        closed=closed,
        waiting=waiting,
        tools=await _tools(tx, end, left["steps"]) if waiting and left else (),
        message_id=tx.turn_message_id or "",
        at=left["ended_at"].isoformat() if left and left["ended_at"] else "",
        expires_at=tx.expiry,
    )


async def closed_before(tx: SessionTx, end: EndTurn) -> str:
    """The end of the step that the workflow means, as JSON text of a StepDone, if it was closed and the workflow not told; else empty."""
    where = {"session_uid": tx.uid, "turn_id": end.turn.turn_id, "attempt": end.turn.attempt}
    step = await sql.closed_step(tx.conn, **where, step=end.step)
    return (step and step["result"]) or ""


async def _tools(tx: SessionTx, end: EndTurn, step: int) -> tuple[ToolDone, ...]:
    """The results of a step's calls of server tools, in the order in which they came."""
    turn = end.turn
    where = {"message_id": tx.turn_message_id, "turn_id": turn.turn_id, "attempt": turn.attempt, "step": step}
    rows = [row async for row in sql.calls_of_step(tx.conn, session_uid=tx.uid, **where)]
    ran = [row for row in rows if row["category"] == "server" and row["state"] == "recorded"]
    return tuple(tool_done(row) for row in sorted(ran, key=lambda row: row["recorded_at"]))


async def end_leftover(tx: SessionTx, at: datetime) -> None:
    """A turn that rows show as running while a workflow only begins: the one before was ended from outside. It is over."""
    if (turn := await sql.live_turn(tx.conn, session_uid=tx.uid)) is not None:
        await end_early(tx, turn["turn_id"], turn["message_id"], LEFTOVER, tx.revision + 1, at)
