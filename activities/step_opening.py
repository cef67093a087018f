"""What a model step finds when it begins: its place in the message, what the conversation was, how far an earlier attempt got."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg
from pydantic_ai.messages import ModelMessage

from activities.context import Conversations, Path, PathKey
from activities.db.pool import Database
from activities.db.session_tx import SessionTx, moment, now_text, sql
from activities.kit import Kit
from activities.limits import check_files
from activities.llm.translate import dump, load, steered
from activities.projection.calls import results_request, unanswered_calls
from activities.projection.ending import usage_of
from activities.projection.opening import Opened, open_turn
from workflows.contracts.errors import TurnFault
from workflows.contracts.steps import RunStep, StepDone
from workflows.model.turn import TurnError, TurnRef, Usage


@dataclass(frozen=True)
class Begun:
    """A step that is to run. `path` is the conversation before it, `request` its new request as JSON (None: it is in the path).

    `results` is that request without the steering that it carries, for the case that the step fails and the steering waits on.
    `fault`: the conversation can't be read, and the turn ends with that.
    """

    turn: TurnRef
    path: Path
    request: str | None
    results: str | None
    steering: tuple[str, ...]
    first_segment: int
    next_model_message: int
    after_seq: int
    run: int
    model_index: int
    failures: int
    seconds: float
    actions: list[dict[str, Any]]
    used: Usage
    fault: TurnError | None = None

    @property
    def messages(self) -> list[ModelMessage]:
        """Everything that the model is sent."""
        return [*self.path.messages, *(load([self.request]) if self.request else [])]


@dataclass(frozen=True)
class _Found:
    tail: Mapping[str, Any]
    before: Mapping[str, Any] | None
    own: str | None
    progress: Mapping[str, Any]
    unanswered: list[asyncpg.Record]
    steering: list[asyncpg.Record]
    after_seq: int
    used: Usage
    host_context: dict[str, Any]
    told: dict[str, Any] | None


FIRST_RUN: Mapping[str, Any] = {"run": 1, "model_index": 0, "failures": 0, "seconds": 0.0, "announced": 0}
"""Where the first step of a turn is whose row this transaction made."""


async def begin(kit: Kit, step: RunStep) -> Begun | StepDone:
    """Opens the turn if this step does, and reads what the step starts from. A step that is closed answers what it had answered.

    Raises Refusal if the rows refuse the input, ServiceUnavailable if Postgres is not there.
    """
    check_files(kit.settings, step.opening)
    async with kit.session(step.session, step.turn.turn_id, step.opening.birth if step.opening else None) as tx:
        opened = Opened(step.turn)
        if (closed := await _closed(tx, step)) is not None:
            return closed
        if step.opening:
            opened = await open_turn(tx, step.turn, step.step, step.opening, step.profile, step.config)
            step = step.model_copy(update={"turn": opened.turn})
        elif tx.turn_state != "running":
            return StepDone(state="stale")
        found = await _find(tx, step, opened)
    path, fault = await _readable(kit, step, found)
    results = results_request(found.unanswered, kit.settings.tool_text_limit, found.told) if found.unanswered else None
    words = [(row["content"], row["accepted_at"].isoformat()) for row in found.steering]
    request = steered(results, words) if words else results
    progress = found.progress
    return Begun(
        turn=step.turn,
        path=path,
        request=dump(request) if request else None,
        results=dump(results) if results else None,
        steering=tuple(row["id"] for row in found.steering),
        first_segment=found.tail["next_segment"],
        next_model_message=found.tail["next_model_message"],
        after_seq=found.after_seq,
        run=progress["run"],
        model_index=progress["model_index"],
        failures=progress["failures"],
        seconds=progress["seconds"],
        actions=found.host_context.get("actions") or [],
        used=found.used,
        fault=fault,
    )


async def left_by_another(kit: Kit, step: RunStep) -> StepDone:
    """What the step answered to the run that superseded this one; `stale` while that is still at it."""
    async with kit.session(step.session, step.turn.turn_id) as tx:
        return await _closed(tx, step) or StepDone(state="stale")


async def _closed(tx: SessionTx, step: RunStep) -> StepDone | None:
    turn = step.turn
    if tx.turn_state is None:
        return None
    row = await sql.closed_step(tx.conn, session_uid=tx.uid, turn_id=turn.turn_id, attempt=turn.attempt, step=step.step)
    if row and row["result"]:
        return StepDone.model_validate_json(row["result"])
    return StepDone(state="stale") if tx.is_over(turn.attempt) else None


async def _find(tx: SessionTx, step: RunStep, opened: Opened) -> _Found:
    turn = step.turn
    tail, before = await _tails(tx, step, opened)
    progress: Mapping[str, Any] = FIRST_RUN
    if tx.turn_state is not None:
        progress = await sql.begin_run(tx.conn, session_uid=tx.uid, turn_id=turn.turn_id, attempt=turn.attempt, step=step.step)
        await _announce_restart(tx, step, tail["next_segment"], progress)
    steering = [row async for row in sql.pending_steering(tx.conn, session_uid=tx.uid, profile=step.profile)] if tx.steered else []
    unanswered = await unanswered_calls(tx, tail)
    context, told = await host_context(tx, step, unanswered)
    used = usage_of(tx.turn_usage) if tx.turn_state is not None else Usage()
    return _Found(tail, before, opened.request, progress, unanswered, steering, tx.cursor, used, context, told)


async def host_context(tx: SessionTx, step: RunStep, unanswered: list[asyncpg.Record]) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The last host context, and the same if the model is to be told of it with the results: the host said it after the calls were made."""
    row = await sql.last_host_context(tx.conn, session_uid=tx.uid) if tx.host_context_known else None
    context = (json.loads(row["host_context"]) if row else None) or {}
    came_now = bool(step.opening and step.opening.result and step.opening.host_context)
    anew = came_now or bool(row and unanswered and row["host_context_at"] > max(call["requested_at"] for call in unanswered))
    return context, context if anew else None


async def _tails(tx: SessionTx, step: RunStep, opened: Opened) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
    """How far the turn's message goes, and the parent of its user's message. What this transaction made it knows."""
    if opened.request is not None:
        return {"id": step.turn.message_id, "next_segment": 0, "next_model_message": 0, "last_kind": None}, opened.parent
    tail = await sql.message_tail(tx.conn, session_uid=tx.uid, message_id=step.turn.message_id)
    parent = step.opening.message.parent_id if step.opening and step.opening.message else None
    return tail, await sql.message_tail(tx.conn, session_uid=tx.uid, message_id=parent) if parent else None


async def _announce_restart(tx: SessionTx, step: RunStep, first_segment: int, progress: Mapping[str, Any]) -> None:
    """An earlier attempt streamed something and did not end: readers are told to forget it (L22, R88)."""
    announced = progress["announced"]
    at = moment(now_text())
    pieces = await tx.fix_live_text(at, stored=False)
    touched = {piece.segment for piece in pieces} | set(range(first_segment, first_segment + announced))
    if touched:
        segments = [{"segment": number, "offset": 0} for number in sorted(touched)]
        await tx.announce("step.restarted", step.turn.turn_id, at, {"segments": segments})
    if announced:
        key = {"session_uid": tx.uid, "turn_id": step.turn.turn_id, "attempt": step.turn.attempt, "step": step.step}
        kept = {name: progress[name] for name in ("run", "model_index", "failures", "seconds")}
        await sql.note_progress(tx.conn, **key, **kept, announced=0)


async def _readable(kit: Kit, step: RunStep, found: _Found) -> tuple[Path, TurnError | None]:
    """The conversation, or why it can't be read. The turn has begun by now, and ends with that."""
    try:
        return await _path(kit.db, kit.paths, step, found), None
    except TurnFault as fault:
        return Path(), fault.error


async def _path(db: Database, paths: Conversations, step: RunStep, found: _Found) -> Path:
    """The conversation that is stored. A new message's own request is small and read; what came before it may be cached."""
    uid, tail = step.session.session_uid, found.tail
    if tail["next_model_message"] or not (step.opening and step.opening.message):
        return await paths.up_to(db, PathKey.of(uid, tail))
    own = [found.own] if found.own is not None else []
    if not own:
        async with db.connection() as conn:
            own = [row["body"] async for row in sql.model_messages_of(conn, session_uid=uid, message_id=step.opening.message.id)]
    before = await paths.up_to(db, PathKey.of(uid, found.before)) if found.before else Path()
    return Path((*before.messages, *load(own)), before.settled, before.size + sum(map(len, own)), before.kept)
