"""The session's workflow after a change that running sessions could not survive."""

from temporalio import workflow

from workflows.contracts.carried import QueuedTurn
from workflows.contracts.inputs import SessionStart
from workflows.session import SessionWorkflow
from workflows.session_jobs import SessionJobs


class Hasty(SessionJobs):
    """Leaves a note before each turn: another order of commands."""

    async def run_turn(self, job: QueuedTurn) -> None:
        workflow.upsert_memo({"hasty": True})
        await super().run_turn(job)


@workflow.defn(name="SessionWorkflow")
class ChangedSession(SessionWorkflow):
    jobs = Hasty

    @workflow.init
    def __init__(self, start: SessionStart) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: SessionStart) -> None:
        await super().run(start)
