"""What a session does, one thing after the other."""

from typing import Any

from temporalio import workflow

from workflows.asking import written
from workflows.contracts.carried import Job, QueuedAmend, QueuedCard, QueuedClose, QueuedRepair, QueuedTurn, SessionState
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import RecordedRefusal, RowsSaid, SessionStart
from workflows.contracts.naming import PRINCIPAL, STATUS, TENANT, TURN
from workflows.contracts.steps import Birth
from workflows.contracts.turns import NoteSteering, SteeringNoted, note_steering
from workflows.model.base import Record
from workflows.model.session import SessionRef
from workflows.model.state import Batch, Head, LastTurn
from workflows.rules.state import KEPT_REFUSALS, carried, remember, status_of
from workflows.turn import LiveTurn, TurnOutcome


class SessionJobs:
    """Holds the state and works off the queue. At most one turn is live."""

    def __init__(self, start: SessionStart) -> None:
        self.state = SessionState.model_validate_json(start.carried) if start.carried else SessionState()
        self.roll_asked = False
        self._start = start
        self._live: LiveTurn | None = None
        self.under_way: Job | None = None
        self._answers: dict[str, Record | Refusal | None] = {}
        self.closed = False
        self._created_at: str | None = None

    def carried(self) -> SessionStart:
        """The argument of the next run."""
        text = carried(self.state).model_dump_json()
        return SessionStart(tenant=self._start.tenant, session_id=self._start.session_id, carried=text)

    def change(self, **fields: Any) -> None:
        """Replaces fields of the state."""
        self.state = self.state.model_copy(update=fields)

    def set_head(self, **fields: Any) -> None:
        """Replaces fields of the head."""
        if "session_uid" in fields:
            self._created_at = workflow.now().isoformat()
        self.change(head=self.state.head.model_copy(update=fields))

    def adopt(self, head: Head) -> None:
        """Takes the head that the rows show."""
        self.change(head=head)

    def enqueue(self, job: Job) -> None:
        """Puts a job behind the others."""
        self.change(queue=(*self.state.queue, job))

    def note_refusal(self, refusal: RecordedRefusal) -> None:
        """Keeps a refused signal for the query."""
        self.change(refusals=(*self.state.refusals, refusal)[-KEPT_REFUSALS:])

    @property
    def revision(self) -> int:
        """The session's revision once everything that was accepted has begun."""
        waiting = (job for job in self.state.queue if isinstance(job, QueuedTurn))
        return self.state.head.revision + sum(1 for job in waiting if job.message or job.result)

    @property
    def closing(self) -> bool:
        """True from the moment on when the session's end is decided."""
        return self.closed or any(isinstance(job, QueuedClose) for job in self.state.queue)

    @property
    def busy_turn(self) -> str | None:
        """The turn that runs, or the first that waits to run."""
        if self._live:
            return self._live.turn.turn_id
        return next((job.turn.turn_id for job in self.state.queue if isinstance(job, QueuedTurn)), None)

    @property
    def busy(self) -> bool:
        """True while a turn runs or waits to run."""
        return self.busy_turn is not None

    @property
    def changing(self) -> bool:
        """True while a card, a change of fields or a repair is on its way into the rows."""
        return any(isinstance(job, QueuedCard | QueuedAmend | QueuedRepair) for job in (self.under_way, *self.state.queue))

    def ends_soon(self, rows: RowsSaid | None) -> bool:
        """True if the rows may be ahead of this state, by the live turn's end or by a change: nothing is refused before that is known."""
        return self.changing or (self.live_turn is not None and (rows is None or rows.ended_turn == self.live_turn))

    def will_consume(self, profile: str | None) -> bool:
        """True if a turn of the profile (None: any) waits to run, or runs and its rows have not seen its beginning."""
        waiting = [job.profile for job in self.state.queue if isinstance(job, QueuedTurn) and job.runs_model and not job.cancelled]
        return any(profile in (None, running) for running in waiting)

    @property
    def live_turn(self) -> str | None:
        """The turn that runs."""
        return self._live.turn.turn_id if self._live else None

    async def note_steering(self, steering: NoteSteering) -> SteeringNoted:
        """Stores accepted steering beside whatever runs."""
        return await written(note_steering, steering, "steering")

    def knows_turn(self, turn_id: str | None, rows: RowsSaid | None) -> bool:
        """True if the turn runs, waits to run, is of the recent past, or was found in the rows."""
        last, state = self.state.head.last_turn, self.state
        known = {self.live_turn, last.turn.turn_id if last else None, *(recent.turn_id for recent in state.recent.values())}
        known |= {job.turn.turn_id for job in state.queue if isinstance(job, QueuedTurn)}
        return turn_id in known - {None, ""} or bool(turn_id and rows and rows.turn)

    def interrupt(self, *, everything: bool = False) -> None:
        """A message comes: the live turn ends, and messages that wait are recorded as cancelled, in their order. With `everything` the
        polite ones too.
        """
        if self._live:
            self._live.cancel()
        self.change(
            queue=tuple(
                job.model_copy(update={"cancelled": True}) if isinstance(job, QueuedTurn) and (everything or not job.polite) else job
                for job in self.state.queue
            )
        )

    def cancel_turn(self, turn_id: str) -> bool | None:
        """Cancels the named live or waiting turn. False: it was asked before. None: no such turn runs or waits."""
        if self._live and self._live.turn.turn_id == turn_id:
            return self._live.cancel()
        for job in self.state.queue:
            if isinstance(job, QueuedTurn) and job.turn.turn_id == turn_id:
                cancelled = job.model_copy(update={"cancelled": True})
                self.change(queue=tuple(cancelled if other is job else other for other in self.state.queue))
                return not job.cancelled
        return None

    async def answer_to(self, ticket: str) -> Record:
        """The answer of a queued job, once it was done. Raises the Refusal that it came to, RuntimeError if it could not be done."""
        await workflow.wait_condition(lambda: ticket in self._answers)
        answer = self._answers.pop(ticket)
        if answer is None:
            raise RuntimeError("it could not be written")
        if isinstance(answer, Refusal):
            raise answer
        return answer

    def give(self, ticket: str, answer: Record | Refusal | None) -> None:
        """Answers the one who holds the ticket; with None if the job could not be done."""
        self._answers[ticket] = answer

    def next_job(self) -> Job:
        """Takes the first job off the queue."""
        job, rest = self.state.queue[0], self.state.queue[1:]
        self.change(queue=rest)
        self.under_way = job
        return job

    @property
    def ref(self) -> SessionRef:
        """The session, as activities name it."""
        return SessionRef(tenant=self._start.tenant, session_id=self._start.session_id, session_uid=self.state.head.session_uid)

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
        opens = bool(job.message or (job.result and job.runs_model))
        revision = head.revision + (2 if opens else 1)
        live = self._live = LiveTurn(self.ref, job, revision, self.birth())
        if opens:
            self.set_head(revision=revision - 1)
        workflow.set_current_details(f"turn {number}: running")
        try:
            outcome = await live.to_its_end()
        finally:
            self._live = None
        if outcome.state == "refused":
            self.set_head(revision=head.revision, hung_under=head.hung_under)
        else:
            self._settle(job, outcome, revision)

    def birth(self) -> Birth | None:
        """What makes the session's row, until a turn has begun."""
        head = self.state.head
        if head.turn_number:
            return None
        created_at = self._created_at or workflow.now().isoformat()
        return Birth(owner=head.owner, profile=head.binding.profile, subject=head.binding.subject, created_at=created_at)

    def _settle(self, job: QueuedTurn, outcome: TurnOutcome, revision: int) -> None:
        """The head after a turn."""
        head = self.state.head
        turn = outcome.turn
        last = LastTurn(turn=turn, next_step=outcome.next_step, error=outcome.error, profile=job.profile, config=job.config)
        batch = head.batch
        if job.message:
            for call in batch.open if batch else ():
                self.change(recorded=remember(self.state.recorded, call.call_id, "superseded"))
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
                since=outcome.at,
            )
        elif outcome.state == "handed_over" and batch:
            batch = batch.model_copy(update={"since": outcome.at})
        if outcome.expires_at:
            self.set_head(expires_at=outcome.expires_at)
        self.set_head(leaf_id=turn.message_id, revision=revision, turn_number=turn.number, batch=batch, last_turn=last)
        self.show()

    def show(self) -> None:
        """What an operator sees: search attributes and current details."""
        head = self.state.head
        status = status_of(head, False)
        waiting = f", waiting for {head.batch.pending.tool_name}" if head.batch and head.batch.pending else ""
        error = f", last error {head.last_turn.error.type}" if head.last_turn and head.last_turn.error else ""
        workflow.set_current_details(f"turn {head.turn_number}: {status}{waiting}{error}")
        if head.indexed:
            workflow.upsert_search_attributes(
                [
                    TENANT.value_set(self._start.tenant),
                    PRINCIPAL.value_set(head.owner or ""),
                    STATUS.value_set(status),
                    TURN.value_set(head.turn_number),
                ]
            )
