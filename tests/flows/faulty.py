"""The session's workflow with faults in it, as a wrong release would have them."""

from typing import Any

from temporalio import workflow

from workflows.contracts.carried import QueuedTurn
from workflows.contracts.inputs import MessageInput, SessionStart
from workflows.session import SessionWorkflow
from workflows.session_inputs import SessionInputs
from workflows.session_jobs import SessionJobs

IN_HANDLER = "explode in the handler"
IN_JOB = "explode in the job"


class FaultyInputs(SessionInputs):
    async def message(self, message: MessageInput) -> Any:
        if message.content == IN_HANDLER:
            raise KeyError(IN_HANDLER)
        return await super().message(message)


class FaultyJobs(SessionJobs):
    async def run_turn(self, job: QueuedTurn) -> None:
        if job.message and job.message.content == IN_JOB:
            raise ZeroDivisionError(IN_JOB)
        await super().run_turn(job)


@workflow.defn(name="SessionWorkflow")
class FaultySession(SessionWorkflow):
    jobs = FaultyJobs
    inputs = FaultyInputs

    @workflow.init
    def __init__(self, start: SessionStart) -> None:
        super().__init__(start)

    @workflow.run
    async def run(self, start: SessionStart) -> None:
        await super().run(start)
