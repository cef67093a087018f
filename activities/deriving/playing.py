"""Plays what histories say on a shadow: the same projecting writes as when it happened, with what came of each step instead of a model."""

from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime
from typing import Any

from activities.db.session_tx import LivePiece, SessionGone, SessionTx, moment, session_tx, sql
from activities.db.shadow import Shadow, owned
from activities.deriving.histories import Write
from activities.deriving.step_ends import pieces_of, step_end
from activities.llm.translate import steered
from activities.projection.between import amend, hand_over, note_steering, repair_calls
from activities.projection.calls import Verdict, results_request, unanswered_calls
from activities.projection.cards import post
from activities.projection.closing import store_end
from activities.projection.lost import end_from_outside, end_leftover
from activities.projection.opening import open_turn
from activities.projection.tooling import record_tool
from activities.step_opening import host_context
from workflows.contracts.errors import OutlastError, words_of
from workflows.contracts.steps import Birth, RunStep, StepDone
from workflows.contracts.tools import RunTool, ToolDone
from workflows.contracts.turns import EndTurn
from workflows.model.session import SessionRef

Play = Callable[["Player", Write], Coroutine[Any, Any, None]]


class Unplayable(OutlastError):
    """A history says something that does not fit what it said before: rows can't be derived from it."""


class Player:
    """Plays one session's writes, in order. `tool_text_limit`: characters of one tool result that the model is given."""

    def __init__(self, shadow: Shadow, session: SessionRef, tool_text_limit: int) -> None:
        self._shadow = shadow
        self._session = session
        self._limit = tool_text_limit
        self._lost: dict[tuple[str, int, int], RunStep] = {}
        self._tools: dict[str, RunTool] = {}
        self._early: list[Callable[[SessionTx], Awaitable[object]]] = []

    async def begin(self, write: Write) -> None:
        """What a write did before it came to anything: a step opens its turn, steering is noted."""
        try:
            if write.name == "run_step":
                await self._open(write.asked, write.done)
            elif write.name == "run_tool":
                self._tools[write.asked.call.call_id] = write.asked
            elif write.name == "note_steering" and write.done is not None:
                await self._beside_a_turn(lambda tx: note_steering(tx, write.asked))
        except Exception as error:
            raise _unplayable(write, error) from error

    async def end(self, write: Write) -> None:
        """What came of it."""
        play = PLAYS.get(write.name)
        if play is None or write.done is None or getattr(write.done, "refused", False):
            return
        try:
            await play(self, write)
            await self._catch_up()
            if expires_at := getattr(write.done, "expires_at", ""):
                await owned.place_expiry(self._shadow.conn, session_uid=self._session.session_uid, expires_at=moment(expires_at))
        except Exception as error:
            raise _unplayable(write, error) from error

    def _tx(self, turn_id: str | None = None, birth: Birth | None = None) -> Any:
        return session_tx(self._shadow, self._session, turn_id, birth, tool_text_limit=self._limit)

    async def _open(self, step: RunStep, done: StepDone | None) -> None:
        if done is None:
            self._lost[step.turn.turn_id, step.turn.attempt, step.step] = step
        elif step.opening and done.state not in ("refused", "stale"):
            await self._opened(step)

    async def _opened(self, step: RunStep) -> None:
        if step.opening:
            async with self._tx(step.turn.turn_id, step.opening.birth) as tx:
                await open_turn(tx, step.turn, step.step, step.opening, step.profile, step.config)
            await self._catch_up()

    async def _beside_a_turn(self, make: Callable[[SessionTx], Awaitable[object]]) -> None:
        """A write that doesn't wait for the live turn. It found the session's row, so if there is none yet, the first turn's step had made it:
        one whose worker was lost and never said so, or one that was asked for behind the write, which waited for it.
        """
        try:
            async with self._tx() as tx:
                await make(tx)
        except SessionGone:
            self._early.append(make)
            if lost := [step for step in self._lost.values() if step.opening and step.opening.birth]:
                await self._opened(lost[-1])

    async def _catch_up(self) -> None:
        early, self._early = self._early, []
        for make in early:
            await self._beside_a_turn(make)

    async def _step(self, write: Write) -> None:
        if write.done.state not in ("refused", "stale"):
            await self._closed(write.asked, write.done)

    async def _closed(self, step: RunStep, done: StepDone) -> None:
        if done.message_id:
            step = step.model_copy(update={"turn": step.turn.model_copy(update={"message_id": done.message_id})})
        async with self._tx(step.turn.turn_id) as tx:
            tail = await sql.message_tail(tx.conn, session_uid=tx.uid, message_id=step.turn.message_id)
            unanswered = await unanswered_calls(tx, tail)
            _, told = await host_context(tx, step, unanswered)
            request = results_request(unanswered, self._limit, told) if unanswered else None
            words = [await self._words(tx, steering_id) for steering_id in done.steering]
            request = steered(request, words) if words else request
            await store_end(tx, step, step_end(done, request, tail["next_segment"], tail["next_model_message"], tx.turn_run or 1))

    @staticmethod
    async def _words(tx: SessionTx, steering_id: str) -> tuple[str, str]:
        row = await sql.one_steering(tx.conn, session_uid=tx.uid, id=steering_id)
        return row["content"], row["accepted_at"].isoformat()

    async def _end_turn(self, write: Write) -> None:
        end: EndTurn = write.asked
        turn = end.turn
        if not write.done.at:
            return
        lost = self._lost.get((turn.turn_id, turn.attempt, end.step))
        if lost is not None and write.done.closed:
            closed = StepDone.model_validate_json(write.done.closed)
            await self._opened(lost)
            await self._closed(lost, closed)
            if closed.state != "calls":  # else it was not the turn's last, and that ended from outside after it
                return
        if write.done.waiting:
            await self._lost_results(write)
            return
        async with self._tx(turn.turn_id, end.opening.birth if end.opening else None) as tx:
            if not tx.is_over(turn.attempt):
                await end_from_outside(tx, end, write.done.at, lambda first: self._streamed(write, first))

    @staticmethod
    def _streamed(write: Write, first: int) -> list[LivePiece]:
        if write.done.kept:
            return [LivePiece(one.place, one.kind, 0, one.text) for one in write.done.kept]
        return pieces_of(write.done.response, first)

    async def _lost_results(self, write: Write) -> None:
        """The last tool handed the turn to the host, and the workflow was never told of it."""
        for done in write.done.tools:
            if done.call_id in self._tools:
                await self._recorded(self._tools[done.call_id], done)

    async def _tool(self, write: Write) -> None:
        await self._recorded(write.asked, write.done)

    async def _recorded(self, call: RunTool, done: ToolDone) -> None:
        if not done.recorded or not done.at:
            return
        verdict = Verdict(done.outcome, done.status, done.output or None, duration_ms=done.duration_ms)
        async with self._tx(call.turn.turn_id) as tx:
            await record_tool(tx, call, verdict, done.at)

    async def _hand_over(self, write: Write) -> None:
        async with self._tx(write.asked.turn.turn_id) as tx:
            await hand_over(tx, write.asked)

    async def _repair(self, write: Write) -> None:
        async with self._tx() as tx:
            await repair_calls(tx, write.asked)

    async def _card(self, write: Write) -> None:
        if not write.done.known:
            async with self._tx(birth=write.asked.birth) as tx:
                await post(tx, write.asked)

    async def _amend(self, write: Write) -> None:
        await self._beside_a_turn(lambda tx: amend(tx, write.asked))

    async def _head(self, write: Write) -> None:
        """A workflow that began where rows existed ended what was left running."""
        at: datetime = write.at
        async with self._tx() as tx:
            await end_leftover(tx, at)


PLAYS: dict[str, Play] = {
    "run_step": Player._step,
    "run_tool": Player._tool,
    "settle_call": Player._tool,
    "hand_over": Player._hand_over,
    "end_turn": Player._end_turn,
    "repair_calls": Player._repair,
    "post_card": Player._card,
    "amend_session": Player._amend,
    "load_head": Player._head,
}


def _unplayable(write: Write, error: Exception) -> Unplayable:
    return Unplayable(f"event {write.event} ({write.name}) of run {write.run_id}: {words_of(error)}")


__all__ = ["Player", "Unplayable"]
