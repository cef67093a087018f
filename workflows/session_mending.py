"""Inputs that mend: a repair of what stays open, another attempt of a turn that failed."""

from temporalio import workflow

from workflows.contracts.carried import QueuedRepair, QueuedTurn
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import RepairInput, RepairReceipt, RetryInput, TurnReceipt
from workflows.rules import admission
from workflows.session_inputs import SessionInputs
from workflows.session_jobs import SessionJobs


class SessionMending:
    """Judges them and puts them behind whatever runs."""

    def __init__(self, jobs: SessionJobs, inputs: SessionInputs) -> None:
        self._jobs = jobs
        self._inputs = inputs

    def check_repair(self, repair: RepairInput) -> None:
        """Raises Refusal for who may not, or expects another state."""
        admission.check_owner(self._jobs.state.head, repair)
        if not self._jobs.ends_soon(repair.rows):
            admission.check_revision(self._jobs.revision, repair)

    async def repair(self, repair: RepairInput) -> RepairReceipt:
        """Takes its place behind the live turn and answers what it did."""
        self.check_repair(repair)
        if not await self._inputs.quiet(repair.rows):
            raise Refusal("busy", "a turn is running; cancel it or wait for its end", later=self._jobs.busy_turn)
        self.check_repair(repair)
        ticket = str(workflow.uuid4())
        self._jobs.enqueue(QueuedRepair(ticket=ticket))
        answer = await self._jobs.answer_to(ticket)
        assert isinstance(answer, RepairReceipt)
        return answer

    def check_retry(self, retry: RetryInput) -> None:
        """Raises Refusal for a turn that can't be retried."""
        admission.check_owner(self._jobs.state.head, retry)
        if not self._jobs.busy and not self._jobs.changing:
            admission.check_revision(self._jobs.revision, retry)
            admission.retryable(self._jobs.state.head, retry)

    async def retry(self, retry: RetryInput) -> TurnReceipt:
        """Queues another attempt of the last turn."""
        jobs = self._jobs
        self.check_retry(retry)
        if not await self._inputs.quiet(retry.rows):
            raise Refusal("not_retryable", "a turn is running")
        self.check_retry(retry)
        last = admission.retryable(jobs.state.head, retry)
        turn = last.turn.model_copy(update={"attempt": last.turn.attempt + 1, "accepted_at": workflow.now().isoformat()})
        jobs.set_head(last_turn=None)
        jobs.enqueue(QueuedTurn(turn=turn, profile=last.profile, config=last.config, first_step=last.next_step, polite=True))
        return self._inputs.receipt(turn)
