"""What a session does, one thing after the other."""

from temporalio import workflow

from workflows.contracts import telemetry
from workflows.contracts.carried import QueuedTurn
from workflows.contracts.inputs import RecordedRefusal
from workflows.contracts.steps import Birth
from workflows.model.state import Batch, Binding, LastTurn
from workflows.model.turn import TurnOutcome, TurnRef
from workflows.rules.queue import waiting_turns
from workflows.rules.shown import attributes, details
from workflows.rules.state import forget, profile_of
from workflows.session_order import SessionOrder
from workflows.turn import LiveTurn


class SessionJobs(SessionOrder):
    """Runs the turns of the queue."""

    async def run_turn(self, job: QueuedTurn) -> None:
        """Runs a turn to its end. Whatever goes wrong in it, the session goes on."""
        head = self.state.head
        first_attempt = job.turn.attempt == 1
        number = head.turn_number + 1 if first_attempt else job.turn.number
        parent = job.turn.parent_id
        if job.message:
            hung_under = job.message.parent_id or (head.hung_under if job.replaces else None) or head.leaf_id
            job = job.model_copy(update={"message": job.message.model_copy(update={"parent_id": hung_under})})
            parent = job.message.id if job.message else None
            self.set_head(hung_under=hung_under)
        job = job.model_copy(update={"turn": job.turn.model_copy(update={"number": number, "parent_id": parent})})
        revision = head.revision + (2 if job.runs_model else 1)
        live = self._live = LiveTurn(self.ref, job, revision, self.birth())
        self.set_head(revision=revision - 1 if job.runs_model else revision)
        workflow.set_current_details(details(head, running=number))
        try:
            outcome = await live.to_its_end()
        finally:
            self._live = None
            self.settled += 1
        _log_end(outcome)
        if outcome.state == "refused":
            self.set_head(revision=head.revision, hung_under=head.hung_under)
            self._refused(job, outcome)
        else:
            self._settle(job, outcome, revision)
            self._promote(outcome.passed_over)

    def _refused(self, refused: QueuedTurn, outcome: TurnOutcome) -> None:
        """What the rows refuse is a refusal that can be asked for, also where no row is there to announce it under. A first input made no session
        then: who sends the next one owns and binds it, and may use the same ids.
        """
        if refused.turn.kind != "steering":  # a turn for words that another one took meanwhile
            code, why = outcome.refused_code or "internal", outcome.refused_why or "the rows refused it"
            self.note_refusal(RecordedRefusal(what=refused.turn.kind, code=code, message=why, at=workflow.now().isoformat()))
        if not self.claimed:
            known = forget(self.state.recent, refused.message.id) if refused.message else self.state.recent
            self.change(head=self.state.head.model_copy(update={"owner": None, "binding": Binding()}), recent=known)

    def _promote(self, profile: str) -> None:
        """Steering that the turn could not take gets a turn of its own if the session is idle now: nothing else would take it."""
        head, arriving = self.state.head, any(steering.profile == profile for steering in self.noting.values())
        if profile and not arriving and not head.batch and not waiting_turns(self.state.queue):
            self.enqueue_steering(str(workflow.uuid4()), profile)

    def enqueue_steering(self, turn_id: str, profile: str | None) -> None:
        """A turn for pending steering of the profile."""
        turn = TurnRef(turn_id=turn_id, number=0, kind="steering", message_id=str(workflow.uuid4()), accepted_at=workflow.now().isoformat())
        self.enqueue(QueuedTurn(turn=turn, profile=profile_of(self.state.head, profile)))

    def birth(self) -> Birth | None:
        """What makes the session's row, until a turn has begun."""
        head = self.state.head
        if head.turn_number:
            return None
        created_at = self.state.created_at or workflow.now().isoformat()
        return Birth(owner=head.owner, profile=head.binding.profile, subject=head.binding.subject, created_at=created_at)

    def _settle(self, job: QueuedTurn, outcome: TurnOutcome, revision: int) -> None:
        """The head after a turn."""
        head = self.state.head
        turn = outcome.turn
        last = LastTurn(turn=turn, next_step=outcome.next_step, error=outcome.error, profile=job.profile, config=job.config)
        batch = head.batch
        if batch and (job.message or outcome.error):
            status = "superseded" if job.message else "cancelled"
            self.record((call.call_id for call in batch.open), status)
            batch = None
        if outcome.state == "paused":
            batch = Batch(
                message_id=turn.message_id,
                turn=turn,
                step=outcome.next_step,
                calls=outcome.host_calls,
                handover="all" if outcome.handover == "all" else "one",
                profile=job.profile,
                config=job.config,
            ).shown(outcome.at)
        elif outcome.state == "handed_over" and batch:
            batch = batch.shown(outcome.at)
        if outcome.expires_at:
            self.set_head(expires_at=outcome.expires_at)
        self.set_head(leaf_id=turn.message_id, revision=revision, turn_number=turn.number, batch=batch, last_turn=last)
        self.show()

    def show(self) -> None:
        """What an operator sees: search attributes and current details."""
        self.show_details()
        if self.state.head.indexed:
            workflow.upsert_search_attributes(attributes(self._start.tenant, self.state.head))

    def show_details(self) -> None:
        """What a run has to say itself: search attributes go from run to run, details don't."""
        workflow.set_current_details(details(self.state.head))


def _log_end(outcome: TurnOutcome) -> None:
    if outcome.error is None or outcome.state == "cancelled":
        workflow.logger.info("turn %s", outcome.state)
    else:
        telemetry.failed(outcome.error.type)
        workflow.logger.warning("turn %s: %s", outcome.state, outcome.error.type)
