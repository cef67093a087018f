"""When a session's run has been long enough, and where the next one begins."""

from typing import NoReturn

from temporalio import workflow

from workflows.contracts import policies
from workflows.session_inputs import SessionInputs
from workflows.session_jobs import SessionJobs


class SessionRollover:
    """Between turns only: whatever is queued, pending or remembered travels with the state."""

    def __init__(self, jobs: SessionJobs, inputs: SessionInputs) -> None:
        self._jobs = jobs
        self._inputs = inputs

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
            or self._inputs.accepted >= policies.ROLL_UPDATES
        )

    def begin_anew(self) -> NoReturn:
        """Continues as new, on the version that is current by then: a run never leaves its build, its successor may. Temporal itself hands
        on only the memo that a run began with, so what was noted since goes with it too: erasures know a session's runs by its uid there.
        """
        noted = {**workflow.memo(), "session_uid": self._jobs.state.head.session_uid}
        workflow.continue_as_new(self._jobs.carried(), memo=noted, initial_versioning_behavior=policies.NEXT_RUN)
