"""The session's workflow after a change that running sessions could not survive."""

from temporalio import workflow

from workflows.contracts.inputs import SessionStart
from workflows.session import SessionWorkflow
from workflows.session_inputs import SessionInputs
from workflows.session_jobs import SessionJobs


class Hasty(SessionJobs):
    """Leaves a note before it does anything: another order of commands."""

    async def take_next(self) -> None:
        workflow.upsert_memo({"hasty": True})
        await super().take_next()


@workflow.defn(name="SessionWorkflow")
class ChangedSession(SessionWorkflow):
    @workflow.init
    def __init__(self, start: SessionStart) -> None:
        super().__init__(start)
        self._jobs = Hasty(start)
        self._inputs = SessionInputs(self._jobs)

    @workflow.run
    async def run(self, start: SessionStart) -> None:
        await super().run(start)
