"""What a session makes of each input: judged by the rules, recorded, answered at once."""

import contextlib
from datetime import datetime
from typing import Any

from temporalio import workflow

from workflows.contracts import policies
from workflows.contracts.carried import QueuedTurn
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import (
    CancelInput,
    CancelReceipt,
    ContinuationInput,
    MessageInput,
    RowsSaid,
    TurnReceipt,
)
from workflows.contracts.json_text import json_text
from workflows.contracts.steps import NewMessage
from workflows.model.call import CallResult
from workflows.model.state import Binding, Recent
from workflows.model.turn import TurnRef
from workflows.room import check_room
from workflows.rules import admission
from workflows.rules.state import named_digest, profile_of, remember
from workflows.session_jobs import SessionJobs


class SessionInputs:
    """Judges and records."""

    def __init__(self, jobs: SessionJobs) -> None:
        self._jobs = jobs

    def check_message_early(self, message: MessageInput) -> None:
        """The same before history, where a turn that may be over already does not count."""
        if not self._jobs.ends_soon(message.rows):
            self.check_message(message)

    def check_message(self, message: MessageInput) -> None:
        """Raises Refusal for a message that does not fit."""
        state = self._jobs.state
        admission.check_shape(message)
        if self._jobs.claimed:
            admission.check_owner(state.head, message)
        if known := state.recent.get(message.id):
            admission.check_same_body(message.id, known.digest, named_digest(message))
            return
        admission.check_binding(state.head, message)
        admission.check_parent(state, message)
        admission.check_new_ids(state, message)
        admission.check_new_turn(message.turn_id, self._jobs.knows_turn(message.turn_id, message.rows))
        admission.check_revision(self._jobs.revision, message)
        admission.check_busy(state.head, message, self._jobs.busy)
        check_room(state.queue, self._jobs.updates)

    async def message(self, message: MessageInput) -> TurnReceipt:
        """Records a message; interrupts what runs unless it asks for patience."""
        particular = message.expected_revision is not None or message.when_busy == "reject"
        if particular and self._jobs.ends_soon(message.rows):
            await self.quiet(message.rows)
        self.check_message(message)
        if known := self._jobs.state.recent.get(message.id):
            return self._repeated(known)
        self.bear(message.principal, message.profile, message.subject)
        replaces = message.when_busy == "replace" and (self._jobs.busy or self._jobs.state.head.batch is not None)
        if message.when_busy in ("interrupt", "replace"):
            self._jobs.interrupt()
        job = self._queued(message, replaces)
        self._jobs.enqueue(job)
        return self.receipt(job.turn)

    def _queued(self, message: MessageInput, replaces: bool) -> QueuedTurn:
        """The message as it waits for its turn; its id is known from now on."""
        jobs, message_id = self._jobs, message.id or str(workflow.uuid4())
        digest = named_digest(message)
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
                id=message_id,
                parent_id=message.parent_id,
                content=message.content,
                digest=digest,
                host_context=message.host_context,
                attachments=message.attachments,
            ),
            cancelled=self._take_tombstone(turn.turn_id),
            polite=message.when_busy == "enqueue",
            replaces=replaces,
        )

    def _repeated(self, known: Recent) -> TurnReceipt:
        return TurnReceipt(
            session_uid=self._jobs.state.head.session_uid,
            turn_id=known.turn_id,
            message_id=known.message_id,
            user_message_id=known.user_message_id,
            first=False,
        )

    def bear(self, principal: str, profile: str | None, subject: str | None) -> None:
        """The first accepted input makes the session: its uid, owner and binding, which later ones don't change (R26)."""
        head = self._jobs.state.head
        if self._jobs.claimed:
            return
        binding = Binding(profile=profile or head.default_profile, subject=subject)
        self._jobs.set_head(session_uid=head.session_uid or str(workflow.uuid4()), owner=principal, binding=binding)
        if not head.born:
            workflow.upsert_memo({"session_uid": self._jobs.state.head.session_uid})

    def _take_tombstone(self, turn_id: str) -> bool:
        until = self._jobs.state.tombstones.get(turn_id)
        return until is not None and workflow.now() < datetime.fromisoformat(until)

    def check_continuation(self, continuation: ContinuationInput) -> None:
        """Raises Refusal for a result that does not fit. While a turn lives only what is recorded already is certain."""
        admission.check_owner(self._jobs.state.head, continuation)
        admission.check_pause(self._jobs.state.head, continuation)
        admission.check_not_recorded(self._jobs.state, continuation)
        admission.check_new_turn(continuation.turn_id, self._jobs.knows_turn(continuation.turn_id, continuation.rows))
        if not self._jobs.busy and not self._jobs.changing:
            admission.check_revision(self._jobs.revision, continuation)
            admission.check_pending(self._jobs.state.head, continuation)

    async def continuation(self, continuation: ContinuationInput) -> TurnReceipt:
        """Accepts a result exactly once. While a turn lives its end is awaited for a moment, then outside (fact `later`)."""
        self.check_continuation(continuation)
        if not await self.quiet(continuation.rows):
            raise Refusal("busy", "a turn is running; send the result again when it has ended", later=self._jobs.busy_turn)
        return await self.accept_result(continuation)

    async def quiet(self, rows: RowsSaid | None) -> bool:
        """True once no turn runs or waits to run and no change is on its way: never refuses on stale state. A change never takes long, nor
        does the news of a turn's end that the `rows` show. While the session is about to roll nobody waits for a turn.

        Raises the refusal `closed` if the session's end was decided meanwhile.
        """
        jobs = self._jobs
        if ended := jobs.ended_in(rows):
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(lambda: jobs.live_turn != ended, timeout=policies.KNOWN_END_WAIT)
        if jobs.busy or jobs.changing:
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(lambda: jobs.rolling or not (jobs.busy or jobs.changing), timeout=policies.LATE_INPUT_WAIT)
            while jobs.changing:  # somebody who woke up at the same moment may have begun another one
                await workflow.wait_condition(lambda: not jobs.changing)
            if jobs.closing:
                raise admission.CLOSED
        return not jobs.busy

    async def accept_result(self, continuation: ContinuationInput) -> TurnReceipt:
        """Records a result and queues what it leads to. Raises Refusal for one that does not fit; nothing may be under way."""
        self.check_continuation(continuation)
        output = json_text(continuation.tool_result) if continuation.result_json is None else continuation.result_json
        result = CallResult(call_id=continuation.tool_call_id, output=output, outcome=continuation.tool_outcome)
        return self.receipt(self._take_result(result, continuation.turn_id, continuation.host_context))

    def expire(self, call_id: str) -> None:
        """The deadline of a call passed: it is `unknown`, and the model goes on knowing that (S58)."""
        self._take_result(CallResult(call_id=call_id, output="null", outcome="expired"), None, None)

    def _take_result(self, result: CallResult, turn_id: str | None, host_context: dict[str, Any] | None) -> TurnRef:
        jobs = self._jobs
        batch = jobs.state.head.batch
        assert batch is not None, "a result is for a pending batch"
        answered = batch.model_copy(update={"answered": (*batch.answered, result.call_id)})
        turn = TurnRef(
            turn_id=turn_id or str(workflow.uuid4()),
            number=0,
            kind="continuation",
            message_id=batch.message_id,
            accepted_at=workflow.now().isoformat(),
        )
        jobs.set_head(batch=answered if answered.open else None)
        jobs.change(recorded=remember(jobs.state.recorded, result.call_id, admission.STATUS_OF_OUTCOME[result.outcome]))
        jobs.enqueue(
            QueuedTurn(
                turn=turn,
                profile=batch.profile,
                config=batch.config,
                result=result,
                host_context=host_context,
                runs_model=not answered.open,
                cancelled=self._take_tombstone(turn.turn_id),
                polite=True,
            )
        )
        return turn

    def check_cancel(self, cancel: CancelInput) -> None:
        """Raises Refusal for who may not."""
        admission.check_owner(self._jobs.state.head, cancel)

    async def cancel(self, cancel: CancelInput) -> CancelReceipt:
        """Ends the live turn; a turn that has not come yet gets a tombstone.

        A host's result in the middle of a batch is one write: once that is being made, nothing is left to be cancelled.
        """
        jobs = self._jobs
        self.check_cancel(cancel)
        ended = cancel.rows.ended_turn if cancel.rows else None
        wanted = cancel.turn_id or jobs.stoppable_turn(ended)
        if wanted is None or wanted == ended:
            return CancelReceipt(cancel_requested=False)
        if (done := jobs.cancel_turn(wanted)) is not None:
            return CancelReceipt(cancel_requested=done, turn_id=wanted)
        if jobs.knows_turn(wanted, cancel.rows):
            return CancelReceipt(cancel_requested=False)
        until = (workflow.now() + policies.TOMBSTONE_LIFE).isoformat()
        jobs.change(tombstones=remember(jobs.state.tombstones, wanted, until))
        return CancelReceipt(cancel_requested=True, turn_id=wanted)

    def receipt(self, turn: TurnRef) -> TurnReceipt:
        """What an accepted input is answered."""
        return TurnReceipt(
            session_uid=self._jobs.state.head.session_uid,
            turn_id=turn.turn_id,
            message_id=turn.message_id,
            user_message_id=turn.user_message_id,
            attempt=turn.attempt,
        )
