"""One turn: model steps and server tools in order, until the model answers, asks the host, fails or is cancelled."""

import asyncio
from collections.abc import Sequence

from temporalio import workflow
from temporalio.common import RawValue
from temporalio.exceptions import ActivityError, is_cancelled_exception

from workflows.asking import Asked, Done, Stub, begun, decoded, written
from workflows.contracts import policies
from workflows.contracts.carried import QueuedTurn
from workflows.contracts.steps import Birth, Opening, RunStep, StepDone, run_step
from workflows.contracts.tools import RunTool, SettleCall, ToolDone, run_tool, settle_call
from workflows.contracts.turns import EndTurn, HandOver, TurnEnded, end_turn, hand_over
from workflows.model.call import OpenCall
from workflows.model.session import SessionRef
from workflows.model.turn import CANCELLED, TIMED_OUT, TOO_LONG, TurnError, TurnOutcome
from workflows.room import is_full


class LiveTurn:
    """Runs one turn. `cancel` may be called at any moment; `run` then ends with what there was."""

    def __init__(self, session: SessionRef, job: QueuedTurn, revision: int, birth: Birth | None) -> None:
        self.turn = job.turn
        self.cancelled = job.cancelled
        self._session = session
        self._job = job
        self._revision = revision
        self._birth = birth
        self._step = job.first_step
        self._spent = 0.0
        self._asked: TurnOutcome | None = None
        self._under_way: set[workflow.ActivityHandle[RawValue]] = set()

    @property
    def profile(self) -> str:
        """The profile that it runs under."""
        return self._job.profile

    @property
    def stoppable(self) -> bool:
        """False for a host's result in the middle of a batch: one write, which is as good as made."""
        return self._job.runs_model

    def cancel(self) -> bool:
        """Asks the turn to end. False if it was asked before."""
        if self.cancelled:
            return False
        self.cancelled = True
        for handle in self._under_way:
            handle.cancel()
        return True

    async def to_its_end(self) -> TurnOutcome:
        """Runs it. Whatever goes wrong in it ends the turn with a reason, never the session (L12)."""
        try:
            return await self.run()
        except Exception as error:
            workflow.logger.exception("a turn failed unexpectedly")
            failed = TurnError.of("internal", f"{type(error).__name__} in the turn")
        try:
            return await self.end(failed)
        except Exception:
            workflow.logger.exception("the end of a failed turn could not be written")
            return TurnOutcome(turn=self.turn, state="refused", error=failed, refused_code="internal", refused_why=failed.message)

    async def run(self) -> TurnOutcome:
        """The turn from its opening to its end."""
        if not self._job.runs_model:
            return await (self.end(CANCELLED) if self._job.cancelled else self._hand_over())
        opening: Opening | None = self._opening()
        while True:
            done = await self._model_step(opening)
            if done is None or (done.state == "stale" and not done.error):  # if the turn is over in the rows, they say how
                return await self.end(self._ending_error())
            self._spent += done.seconds
            if done.message_id:
                self.turn = self.turn.model_copy(update={"message_id": done.message_id})
            if done.state != "calls":
                return self._outcome(done)
            asked = self._asked = self._outcome(done, state="paused")
            results = await self._server_tools(done)
            if last := next((result for result in results if result.paused), None):
                return asked.model_copy(update={"at": last.at, "expires_at": last.expires_at})
            # From here on a retry goes on behind the tools: those that finished are never run again.
            opening, self._step = None, self._step + 1
            if error := self._stops(results):
                return await self.end(error)

    def _stops(self, results: list[ToolDone]) -> TurnError | None:
        """Why nothing more is asked for after these results, if so."""
        if self.cancelled:
            return CANCELLED
        if any(result.out_of_time for result in results):
            return TIMED_OUT
        return TOO_LONG if is_full() else None

    def _opening(self) -> Opening:
        job = self._job
        return Opening(
            revision=self._revision - 1,
            birth=self._birth,
            message=job.message,
            result=job.result,
            host_context=job.host_context,
            retry=job.turn.attempt > 1,
            steering=job.turn.kind == "steering" and job.turn.attempt == 1,
        )

    async def _model_step(self, opening: Opening | None) -> StepDone | None:
        step = RunStep(
            session=self._session,
            turn=self.turn,
            step=self._step,
            revision=self._revision,
            profile=self._job.profile,
            config=self._job.config,
            opening=opening,
            spent_seconds=self._spent,
            cancelled=self.cancelled,
        )
        return await self._finish(run_step, begun(run_step, step, policies.STEP, f"step {self._step}"))

    async def _finish(self, stub: Stub[Asked, Done], handle: "workflow.ActivityHandle[RawValue]") -> Done | None:
        """The activity's result; None if it was cancelled or failed without one."""
        self._under_way.add(handle)
        try:
            return decoded(stub, await handle)
        except (ActivityError, asyncio.CancelledError) as error:
            if not self.cancelled and is_cancelled_exception(error):
                raise
            workflow.logger.warning("an activity of the turn ended without a result: %s", error)
            return None
        finally:
            self._under_way.discard(handle)

    async def _server_tools(self, done: StepDone) -> list[ToolDone]:
        """Runs the step's server calls side by side, some behind one another if there are very many. The last of them may hand the
        turn over to the host.
        """
        lanes = min(len(done.server_calls), policies.CALLS_AT_ONCE)
        ended = await asyncio.gather(*(self._one_by_one(done.server_calls[lane::lanes]) for lane in range(lanes)))
        self._spent += max((sum(result.seconds for result in lane) for lane in ended), default=0.0)
        return [result for lane in ended for result in lane]

    async def _one_by_one(self, calls: Sequence[OpenCall]) -> list[ToolDone]:
        results: list[ToolDone] = []
        for call in calls:
            spent = self._spent + sum(result.seconds for result in results)
            if not (self.cancelled or is_full()) and (result := await self._server_tool(call, spent)):
                results.append(result)
        return results  # what becomes of calls that have none the turn's end says

    async def _server_tool(self, call: OpenCall, spent: float) -> ToolDone | None:
        run = RunTool(
            session=self._session,
            turn=self.turn,
            step=self._step,
            call=call,
            profile=self._job.profile,
            revision=self._revision,
            spent_seconds=spent,
        )
        result = await self._finish(run_tool, begun(run_tool, run, policies.tool(call), call.tool_name))
        return await self._settle(run) if result is None and not self.cancelled else result

    async def _settle(self, run: RunTool) -> ToolDone:
        reason = "its worker stopped while it ran, so whether it took effect is not known"
        settled = SettleCall(**dict(run), status="unknown", reason=reason)
        return await written(settle_call, settled, run.call.tool_name)

    async def _hand_over(self) -> TurnOutcome:
        assert self._job.result is not None, "a turn without a model request is a result in the middle of a batch"
        result = HandOver(
            session=self._session,
            turn=self.turn,
            result=self._job.result,
            revision=self._revision,
            host_context=self._job.host_context,
        )
        ended = await written(hand_over, result, "next host action")
        state = "refused" if ended.refused else "handed_over"
        return TurnOutcome(turn=self.turn, state=state, at=ended.at, expires_at=ended.expires_at, **_refusal(ended))

    def _ending_error(self) -> TurnError:
        return CANCELLED if self.cancelled else TurnError.of("internal", "the model step failed unexpectedly; the turn may be retried")

    async def end(self, error: TurnError) -> TurnOutcome:
        """Ends the turn from outside its step."""
        ended = await execute_end(
            EndTurn(
                session=self._session,
                turn=self.turn,
                step=self._step,
                error=error,
                revision=self._revision,
                profile=self._job.profile,
                config=self._job.config,
                opening=self._opening() if self._step == self._job.first_step else None,
            )
        )
        if ended.message_id:
            self.turn = self.turn.model_copy(update={"message_id": ended.message_id})
        if known := self._ended_before(ended):
            return known
        state = "refused" if ended.refused else "cancelled" if error.type == "cancelled" else "failed"
        return TurnOutcome(turn=self.turn, state=state, next_step=self._step, error=error, expires_at=ended.expires_at, **_refusal(ended))

    def _ended_before(self, ended: TurnEnded) -> TurnOutcome | None:
        """How the turn had ended, if a write did that whose answer was lost: what was announced stays as it is."""
        closed = self._outcome(StepDone.model_validate_json(ended.closed)) if ended.closed else None
        if ended.waiting and (asked := closed or self._asked):
            return asked.model_copy(update={"turn": self.turn, "state": "paused", "at": ended.at, "expires_at": ended.expires_at})
        return closed if closed and closed.state != "calls" else None

    def _outcome(self, done: StepDone, state: str | None = None) -> TurnOutcome:
        return TurnOutcome(
            turn=self.turn,
            state=state or done.state,
            next_step=self._step,
            host_calls=done.host_calls,
            handover=done.handover,
            error=done.error,
            at=done.at,
            expires_at=done.expires_at,
            passed_over=done.passed_over,
            refused_code=done.refused_code,
            refused_why=done.error.message if done.refused_code and done.error else "",
        )


async def execute_end(end: EndTurn) -> TurnEnded:
    """Ends a turn from outside its step, for as long as it takes to be written."""
    return await written(end_turn, end, f"end: {end.error.type}")


def _refusal(ended: TurnEnded) -> dict[str, str]:
    return {"refused_code": ended.refused_code, "refused_why": ended.refused_why}
