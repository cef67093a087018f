"""How a model step ends: its messages, calls, text and usage, and the turn's end if it is one, in one transaction."""

import json
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

import asyncpg

from activities.db.session_tx import LivePiece, SessionTx, moment, sql
from activities.llm.translate import LIBRARY
from activities.projection.calls import Verdict, announce_result, record
from activities.projection.ending import end_early, finish_turn, open_batch, usage_json, usage_of
from workflows.contracts.json_text import json_text
from workflows.contracts.steps import RunStep, StepDone
from workflows.model.call import OpenCall
from workflows.model.turn import Usage


@dataclass(frozen=True)
class NewCall:
    """A call of the response. `segment` is its group's place among the step's segments, `position` its own among the response's calls. With a
    `verdict` it never runs.
    """

    call: OpenCall
    arguments: str
    segment: int
    position: int
    verdict: Verdict | None = None
    announced: bool = False

    @property
    def options(self) -> str:
        """How it is run or waited for, as JSON text."""
        return json_text(self.call.model_dump(exclude={"call_id", "tool_name", "arguments_digest"}))


@dataclass(frozen=True)
class StepEnd:
    """What a step leaves.

    `segments` are (place, kind, text), places counted from `first_segment`; `unsent` is what of them was not streamed. `request` and
    `response` are model messages as JSON.
    """

    done: StepDone
    run: int
    first_segment: int
    next_model_message: int
    segments: list[tuple[int, str, str]] = field(default_factory=list)
    unsent: list[LivePiece] = field(default_factory=list)
    calls: list[NewCall] = field(default_factory=list)
    request: str | None = None
    response: str | None = None
    prompt: list[dict[str, Any]] | None = None

    @property
    def text(self) -> str:
        """The step's plain text."""
        return "".join(text for _, kind, text in self.segments if kind == "text")


async def close_step(tx: SessionTx, step: RunStep, end: StepEnd) -> StepDone:
    """Commits a step's end; a second one, or one of a run that was superseded, finds what there is and changes nothing (R33)."""
    if tx.turn_state != "running" or (tx.turn_attempt, tx.turn_run) != (step.turn.attempt, end.run):
        return await _closed_before(tx, step)
    if end.done.state == "answered" and tx.steered:
        end = replace(end, done=await _behind_steering(tx, step, end))
    if end.done.state != "calls":
        end = replace(end, done=end.done.model_copy(update={"expires_at": tx.slide(moment(end.done.at))}))
    return end.done if await store_end(tx, step, end) else await _closed_before(tx, step)


async def store_end(tx: SessionTx, step: RunStep, end: StepEnd) -> bool:
    """Writes everything that a step's end is. False if the step has one already, and nothing is written."""
    if await sql.close_step(tx.conn, **_key(tx, step), result=end.done.model_dump_json(exclude_defaults=True)) is None:
        return False
    at = moment(end.done.at)
    await tx.fix_live_text(at, stored=True, unsent=end.unsent, turn_id=step.turn.turn_id)
    await _rows(tx, step, end, at)
    await _calls(tx, step, end, at)
    turn = await _sums(tx, step, end, at)
    await _deliver(tx, step, end, at)
    await _ending(tx, step, end, turn, at)
    return True


async def _behind_steering(tx: SessionTx, step: RunStep, end: StepEnd) -> StepDone:
    """Steering that was accepted before this very transaction causes one more step; what comes later, or is for another profile, is
    promoted.
    """
    pending = [row["id"] async for row in sql.pending_steering(tx.conn, session_uid=tx.uid, profile=step.profile)]
    if set(pending) - set(end.done.steering):
        return end.done.model_copy(update={"state": "calls"})
    passed_over: str | None = await sql.passed_over_profile(tx.conn, session_uid=tx.uid, profile=step.profile)
    return end.done.model_copy(update={"passed_over": passed_over or ""})


async def _closed_before(tx: SessionTx, step: RunStep) -> StepDone:
    row = await sql.closed_step(tx.conn, **_key(tx, step))
    return StepDone.model_validate_json(row["result"]) if row and row["result"] else StepDone(state="stale")


def _key(tx: SessionTx, step: RunStep) -> dict[str, Any]:
    return {"session_uid": tx.uid, "turn_id": step.turn.turn_id, "attempt": step.turn.attempt, "step": step.step}


async def _rows(tx: SessionTx, step: RunStep, end: StepEnd, at: datetime) -> None:
    turn = step.turn
    where = {"session_uid": tx.uid, "message_id": turn.message_id, "turn_id": turn.turn_id, "attempt": turn.attempt, "step": step.step}
    kept = [(kind, body) for kind, body in (("request", end.request), ("response", end.response)) if body is not None]
    if end.segments or kept:
        await sql.insert_step_rows(
            tx.conn,
            **where,
            segments=[end.first_segment + place for place, _, _ in end.segments],
            kinds=[kind for _, kind, _ in end.segments],
            texts=[text for _, _, text in end.segments],
            positions=list(range(end.next_model_message, end.next_model_message + len(kept))),
            roles=[kind for kind, _ in kept],
            bodies=[body for _, body in kept],
            library=LIBRARY,
        )


async def _calls(tx: SessionTx, step: RunStep, end: StepEnd, at: datetime) -> None:
    if not end.calls:
        return
    turn, calls = step.turn, end.calls
    await sql.insert_calls(
        tx.conn,
        session_uid=tx.uid,
        message_id=turn.message_id,
        turn_id=turn.turn_id,
        attempt=turn.attempt,
        step=step.step,
        at=at,
        call_ids=[call.call.call_id for call in calls],
        segments=[end.first_segment + call.segment for call in calls],
        positions=[call.position for call in calls],
        tool_names=[call.call.tool_name for call in calls],
        categories=[call.call.category for call in calls],
        arguments=[call.arguments for call in calls],
        digests=[call.call.arguments_digest for call in calls],
        options=[call.options for call in calls],
        deadlines=[None for _ in calls],
    )
    for call in calls:
        if not call.announced:
            await tx.announce("tool.call", turn.turn_id, at, call_event(call))
    for call in calls:
        if call.verdict:
            await record(tx, call.call.call_id, call.verdict, at)
            await announce_result(tx, turn.turn_id, call.call.call_id, call.verdict, at)


def call_event(new: NewCall) -> dict[str, Any]:
    """The data of `tool.call`: complete arguments, once."""
    call = new.call
    return {"call_id": call.call_id, "tool_name": call.tool_name, "arguments": _value(new.arguments), "category": call.category}


def _value(text: str) -> Any:
    """JSON arguments as a value; text that is not JSON stays text, so that a reader sees what the model wrote."""
    try:
        return json.loads(text)
    except ValueError:
        return text


async def _sums(tx: SessionTx, step: RunStep, end: StepEnd, at: datetime) -> asyncpg.Record:
    """Text and usage of the step on its turn, its message and the ledger. Answers the turn as it then stands."""
    turn, done = step.turn, end.done
    extended: asyncpg.Record = await sql.extend_turn(
        tx.conn,
        session_uid=tx.uid,
        turn_id=turn.turn_id,
        message_id=turn.message_id,
        attempt=turn.attempt,
        step=step.step,
        content=end.text,
        model=done.model or None,
        turn_usage=json_text(usage_json(_added(usage_of(tx.turn_usage), done.usage))),
        message_usage=json_text(usage_json(_added(usage_of(tx.message_usage), done.usage))),
        first_text_at=moment(done.first_text_at) if done.first_text_at else None,
        error=json_text(done.error.model_dump()) if done.error else None,
        prompt=json_text(end.prompt) if end.prompt is not None else None,
        change=tx.next_change(),
        at=at,
        requests=done.usage.requests,
        tenant=tx.tenant,
        principal=tx.owner,
        input_tokens=done.usage.input_tokens,
        output_tokens=done.usage.output_tokens,
        cost_usd=Decimal(done.usage.cost_usd) if done.usage.cost_usd else None,
    )
    return extended


def _added(one: Usage, two: Usage) -> Usage:
    costs = [Decimal(cost) for cost in (one.cost_usd, two.cost_usd) if cost is not None]
    return Usage(
        input_tokens=one.input_tokens + two.input_tokens,
        output_tokens=one.output_tokens + two.output_tokens,
        requests=one.requests + two.requests,
        tool_calls=one.tool_calls + two.tool_calls,
        cost_usd=str(sum(costs, Decimal(0))) if costs else None,
    )


async def _deliver(tx: SessionTx, step: RunStep, end: StepEnd, at: datetime) -> None:
    """Steering counts as delivered only now that the step which consumed it has finished."""
    if not end.done.steering:
        return
    delivered = [
        row
        async for row in sql.deliver_steering(
            tx.conn,
            session_uid=tx.uid,
            ids=list(end.done.steering),
            changes=[tx.next_change() for _ in end.done.steering],
            message_id=step.turn.message_id,
            turn_id=step.turn.turn_id,
            before_segment=end.first_segment,
            at=at,
        )
    ]
    for row in sorted(delivered, key=lambda row: row["number"]):
        await tx.announce("steering.delivered", step.turn.turn_id, at, {"steering_id": row["id"], "message_id": step.turn.message_id})


async def _ending(tx: SessionTx, step: RunStep, end: StepEnd, row: asyncpg.Record, at: datetime) -> None:
    turn, done = step.turn, end.done
    if done.state == "answered":
        await finish_turn(tx, turn.turn_id, "completed", None, step.revision, at, row=row, waiting=tx.waiting)
    elif done.state == "paused":
        await open_batch(tx, turn.message_id, turn.turn_id, step.step, done.handover, at)
        await finish_turn(tx, turn.turn_id, "waiting", None, step.revision, at, row=row)
    elif done.error:
        await end_early(tx, turn.turn_id, turn.message_id, done.error, step.revision, at)
