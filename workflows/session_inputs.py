"""What a session makes of each input: judged by the rules, recorded, answered at once."""

from datetime import datetime, timedelta

from temporalio import workflow

from workflows.contracts import policies
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import (
    CancelInput,
    CancelReceipt,
    ContinuationInput,
    MessageInput,
    RepairInput,
    RepairReceipt,
    RetryInput,
    TurnReceipt,
)
from workflows.contracts.json_text import json_text
from workflows.contracts.steps import NewMessage
from workflows.model.call import CallResult
from workflows.model.state import Binding, Recent
from workflows.model.turn import TurnRef
from workflows.rules import admission
from workflows.rules.state import QueuedRepair, QueuedTurn, body_digest, profile_of, remember
from workflows.session_jobs import SessionJobs


class SessionInputs:
    """Judges and records. `accepted` counts what this run took, so that it can roll in time."""

    def __init__(self, jobs: SessionJobs) -> None:
        self._jobs = jobs
        self.accepted = 0

    def check_message(self, message: MessageInput) -> None:
        """Raises Refusal for a message that does not fit."""
        state = self._jobs.state
        admission.check_shape(message)
        if state.head.born:
            admission.check_owner(state.head, message)
        if known := state.recent.get(message.id):
            admission.check_same_body(message.id, known.digest, message.digest or body_digest(message))
            return
        ended = message.rows.ended_turn if message.rows else None
        admission.check_binding(state.head, message)
        admission.check_revision(state.head, message)
        admission.check_parent(state, message)
        admission.check_new_ids(state, message)
        admission.check_busy(state.head, message, self._jobs.busy and self._jobs.busy_turn != ended)

    async def message(self, message: MessageInput) -> TurnReceipt:
        """Records a message; interrupts what runs unless it asks for patience."""
        self.check_message(message)
        if known := self._jobs.state.recent.get(message.id):
            return self._repeated(known)
        self.accepted += 1
        self._bear(message)
        if message.when_busy in ("interrupt", "replace"):
            self._jobs.interrupt()
        job = self._queued(message)
        self._jobs.enqueue(job)
        return self._receipt(job.turn)

    def _queued(self, message: MessageInput) -> QueuedTurn:
        """The message as it waits for its turn; its id is known from now on."""
        jobs, message_id = self._jobs, message.id or str(workflow.uuid4())
        digest = message.digest or body_digest(message)
        turn = TurnRef(
            turn_id=message.turn_id or str(workflow.uuid4()),
            number=0,
            message_id=str(workflow.uuid4()),
            user_message_id=message_id,
            accepted_at=workflow.now().isoformat(),
        )
        recent = Recent(digest=digest, turn_id=turn.turn_id, message_id=turn.message_id, user_message_id=message_id)
        jobs.change(recent=remember(jobs.state.recent, message_id, recent))
        return QueuedTurn(
            turn=turn,
            profile=profile_of(jobs.state.head, message.profile),
            config=message.config,
            message=NewMessage(
                id=message_id, parent_id=message.parent_id, content=message.content, digest=digest, host_context=message.host_context
            ),
            cancelled=self._take_tombstone(turn.turn_id),
            polite=message.when_busy == "enqueue",
        )

    def _repeated(self, known: Recent) -> TurnReceipt:
        return TurnReceipt(
            session_uid=self._jobs.state.head.session_uid,
            turn_id=known.turn_id,
            message_id=known.message_id,
            user_message_id=known.user_message_id,
            first=False,
        )

    def _bear(self, message: MessageInput) -> None:
        """The first accepted input makes the session: its uid, owner and binding."""
        head = self._jobs.state.head
        if not head.born:
            binding = Binding(profile=message.profile or head.default_profile, subject=message.subject)
            self._jobs.set_head(session_uid=str(workflow.uuid4()), owner=message.principal, binding=binding)
        elif message.subject and head.binding.subject is None:
            profile = message.profile or head.binding.profile
            self._jobs.set_head(binding=Binding(profile=profile, subject=message.subject))

    def _take_tombstone(self, turn_id: str) -> bool:
        until = self._jobs.state.tombstones.get(turn_id)
        return until is not None and workflow.now() < datetime.fromisoformat(until)

    def check_continuation(self, continuation: ContinuationInput) -> None:
        """Raises Refusal for a result that does not fit. While a turn lives only what is recorded already is certain."""
        admission.check_owner(self._jobs.state.head, continuation)
        admission.check_not_recorded(self._jobs.state, continuation)
        if not self._jobs.busy:
            admission.check_revision(self._jobs.state.head, continuation)
            admission.check_pending(self._jobs.state.head, continuation)

    async def continuation(self, continuation: ContinuationInput) -> TurnReceipt:
        """Accepts a result exactly once. While a turn lives its end is awaited for a moment, then outside (fact `later`)."""
        self.check_continuation(continuation)
        if not await self._quiet(policies.LATE_INPUT_WAIT):
            raise Refusal("busy", "a turn is running; send the result again when it has ended", later=self._jobs.busy_turn)
        return self._accept_result(continuation)

    async def patient_continuation(self, continuation: ContinuationInput) -> TurnReceipt:
        """The same for a signal, which nobody sends again: it waits for as long as the live turn takes."""
        self.check_continuation(continuation)
        await self._quiet(None)
        return self._accept_result(continuation)

    async def _quiet(self, patience: timedelta | None) -> bool:
        """True once no turn runs or waits to run. Never refuses on stale state: a live step may have been announced already."""
        if not self._jobs.busy:
            return True
        try:
            await workflow.wait_condition(lambda: not self._jobs.busy, timeout=patience)
        except TimeoutError:
            return False
        return True

    def _accept_result(self, continuation: ContinuationInput) -> TurnReceipt:
        jobs = self._jobs
        self.check_continuation(continuation)
        batch = jobs.state.head.batch
        assert batch is not None, "checked by check_pending"
        self.accepted += 1
        call_id = continuation.tool_call_id
        answered = batch.model_copy(update={"answered": (*batch.answered, call_id)})
        turn = TurnRef(
            turn_id=continuation.turn_id or str(workflow.uuid4()),
            number=0,
            kind="continuation",
            message_id=batch.message_id,
            accepted_at=workflow.now().isoformat(),
        )
        result = CallResult(call_id=call_id, output=json_text(continuation.tool_result), outcome=continuation.tool_outcome)
        jobs.set_head(batch=answered if answered.open else None)
        jobs.change(recorded=remember(jobs.state.recorded, call_id, admission.STATUS_OF_OUTCOME[continuation.tool_outcome]))
        jobs.enqueue(
            QueuedTurn(
                turn=turn,
                profile=batch.profile,
                config=batch.config,
                result=result,
                host_context=continuation.host_context,
                runs_model=not answered.open,
                cancelled=self._take_tombstone(turn.turn_id),
                polite=True,
            )
        )
        return self._receipt(turn)

    def check_cancel(self, cancel: CancelInput) -> None:
        """Raises Refusal for who may not."""
        admission.check_owner(self._jobs.state.head, cancel)

    async def cancel(self, cancel: CancelInput) -> CancelReceipt:
        """Ends the live turn; a turn that has not come yet gets a tombstone."""
        jobs = self._jobs
        self.check_cancel(cancel)
        ended = cancel.rows.ended_turn if cancel.rows else None
        wanted = cancel.turn_id or jobs.busy_turn
        if wanted is None or wanted == ended:
            return CancelReceipt(cancel_requested=False)
        if (done := jobs.cancel_turn(wanted)) is not None:
            return CancelReceipt(cancel_requested=done, turn_id=wanted)
        if jobs.knows_turn(wanted) or (cancel.rows and cancel.rows.turn):
            return CancelReceipt(cancel_requested=False)
        until = (workflow.now() + policies.TOMBSTONE_LIFE).isoformat()
        jobs.change(tombstones=remember(jobs.state.tombstones, wanted, until))
        return CancelReceipt(cancel_requested=True, turn_id=wanted)

    def check_repair(self, repair: RepairInput) -> None:
        """Raises Refusal for who may not, or expects another state."""
        admission.check_owner(self._jobs.state.head, repair)
        admission.check_revision(self._jobs.state.head, repair)

    async def repair(self, repair: RepairInput) -> RepairReceipt:
        """Takes its place behind the live turn and answers what it did."""
        self.check_repair(repair)
        if not await self._quiet(policies.LATE_INPUT_WAIT):
            raise Refusal("busy", "a turn is running; cancel it or wait for its end", later=self._jobs.busy_turn)
        self.accepted += 1
        ticket = str(workflow.uuid4())
        self._jobs.enqueue(QueuedRepair(ticket=ticket))
        return await self._jobs.repaired(ticket)

    def check_retry(self, retry: RetryInput) -> None:
        """Raises Refusal for a turn that can't be retried."""
        admission.check_owner(self._jobs.state.head, retry)
        if not self._jobs.busy:
            admission.check_revision(self._jobs.state.head, retry)
            admission.retryable(self._jobs.state.head, retry)

    async def retry(self, retry: RetryInput) -> TurnReceipt:
        """Queues another attempt of the last turn."""
        jobs = self._jobs
        self.check_retry(retry)
        if not await self._quiet(policies.LATE_INPUT_WAIT):
            raise Refusal("not_retryable", "a turn is running")
        self.check_retry(retry)
        last = admission.retryable(jobs.state.head, retry)
        self.accepted += 1
        turn = last.turn.model_copy(update={"attempt": last.turn.attempt + 1, "accepted_at": workflow.now().isoformat()})
        jobs.set_head(last_turn=None)
        jobs.enqueue(QueuedTurn(turn=turn, profile=last.profile, config=last.config, first_step=last.next_step, polite=True))
        return self._receipt(turn)

    def _receipt(self, turn: TurnRef) -> TurnReceipt:
        return TurnReceipt(
            session_uid=self._jobs.state.head.session_uid,
            turn_id=turn.turn_id,
            message_id=turn.message_id,
            user_message_id=turn.user_message_id,
            attempt=turn.attempt,
        )
