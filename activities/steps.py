"""The model step, as an activity."""

from temporalio import activity

from activities.beating import beating
from activities.db.session_tx import SessionGone
from activities.kit import Kit
from activities.measures import measure_step
from activities.running import Running, guarded
from activities.step_run import StepRun
from workflows.contracts.steps import RunStep, StepDone
from workflows.model.turn import TurnError


class Steps:
    """Runs model steps, each at most once at a time in the whole system."""

    def __init__(self, kit: Kit, running: Running) -> None:
        self._kit = kit
        self._running = running

    @activity.defn
    async def run_step(self, step: RunStep) -> StepDone:
        """Runs one model request and commits what came of it."""
        async with beating():
            return await guarded(self._run(step))

    async def _run(self, step: RunStep) -> StepDone:
        run = StepRun(self._kit, step)
        turn = step.turn
        try:
            done = await self._running.once(f"{step.session.session_uid}/{turn.turn_id}/{turn.attempt}/{step.step}", run, run.run)
        except SessionGone:
            return StepDone(state="stale", error=TurnError.of("session_error", "the session is gone"))
        measure_step(done)
        return done
