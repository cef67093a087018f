"""When a session's run has been long enough, and how the next one begins: between turns, with nothing lost.

What is queued, pending or remembered travels with the state; a handler can't. So from the moment on when a roll is due and no turn runs,
those that wait for a turn are sent away to come again, what others wait for is done, and who comes meanwhile is asked to come again: a
steady stream of inputs must not keep a run alive for ever.
"""

from typing import NoReturn

from temporalio import workflow

from workflows.contracts import policies
from workflows.session_jobs import SessionJobs


class SessionRollover:
    """Continues as new at any of the limits, or when it is asked to."""

    def __init__(self, jobs: SessionJobs) -> None:
        self._jobs = jobs

    def due(self) -> bool:
        """True for a session that lives on, and whose run is long or runs a build that is not the current one any more."""
        return self._jobs.state.head.born and not self._jobs.closing and self._long_enough(workflow.info())

    def _long_enough(self, info: workflow.Info) -> bool:
        return (
            self._jobs.roll_asked
            or info.is_continue_as_new_suggested()
            or info.is_target_worker_deployment_version_changed()
            or info.get_current_history_length() >= policies.ROLL_EVENTS
            or info.get_current_history_size() >= policies.ROLL_BYTES
            or self._jobs.updates >= policies.ROLL_UPDATES
        )

    async def roll(self) -> None:
        """Continues as new as soon as no handler is left. Comes back where something that is queued has to be done before."""
        jobs = self._jobs
        jobs.draining = True
        await workflow.wait_condition(lambda: workflow.all_handlers_finished() or jobs.owes or jobs.closing)
        if self.due() and workflow.all_handlers_finished():
            self._begin_anew()

    def _begin_anew(self) -> NoReturn:
        """On the version that is current by then: a run never leaves its build, its successor may. Temporal itself hands on only the memo
        that a run began with, so what was noted since goes with it too: erasures know a session's runs by its uid there.
        """
        noted = {**workflow.memo(), "session_uid": self._jobs.state.head.session_uid}
        workflow.continue_as_new(self._jobs.carried(), memo=noted, initial_versioning_behavior=policies.NEXT_RUN)
