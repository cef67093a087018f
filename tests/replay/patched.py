"""The session's workflow after a change that running sessions survive: it is guarded by a patch."""

from temporalio import workflow

from workflows.contracts.carried import QueuedTurn
from workflows.contracts.inputs import SessionStart
from workflows.session import SessionWorkflow
from workflows.session_jobs import SessionJobs

PATCH = "note-before-continuations"


class Careful(SessionJobs):
    """Leaves a note before each continuation, in runs that had none before the change."""

    async def run_turn(self, job: QueuedTurn) -> None:
        if job.result and workflow.patched(PATCH):
            workflow.upsert_memo({"noted": job.turn.turn_id})
        await super().run_turn(job)


@workflow.defn(name="SessionWorkflow")
class PatchedSession(SessionWorkflow):
    jobs = Careful

    @workflow.init
    def __init__(self, start: SessionStart) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: SessionStart) -> None:
        await super().run(start)
