"""What a session has accepted: its state, what runs, what waits, and who is owed an answer."""

from collections.abc import Iterable
from typing import Any

from temporalio import workflow

from workflows.asking import written
from workflows.contracts import telemetry
from workflows.contracts.carried import Job, QueuedAmend, QueuedCard, QueuedClose, QueuedRepair, SessionState
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import RecordedRefusal, RowsSaid, SessionStart
from workflows.contracts.turns import NoteSteering, SteeringNoted, note_steering
from workflows.model.base import Record
from workflows.model.session import SessionRef
from workflows.model.state import Head
from workflows.rules.queue import interrupted, takes_steering, waiting_turns, without
from workflows.rules.state import KEPT_REFUSALS, carried, remember
from workflows.turn import LiveTurn


class SessionOrder:
    """Holds the state and the queue. At most one turn is live.

    `noting` is steering on its way into the rows, by the turn of its own; `settled` counts the turns that this run saw end. `draining` says
    that the run is to end as soon as no handler is left.
    """

    def __init__(self, start: SessionStart) -> None:
        self.state = SessionState.model_validate_json(start.carried) if start.carried else SessionState()
        self.roll_asked = False
        self.draining = False
        self._start = start
        self._live: LiveTurn | None = None
        self.under_way: Job | None = None
        self.noting: dict[str, NoteSteering] = {}
        self.settled = 0
        self._answers: dict[str, Record | Refusal | None] = {}
        self.closed = False
        self.updates = 0

    def carried(self) -> SessionStart:
        """The argument of the next run."""
        text = carried(self.state, workflow.now()).model_dump_json()
        return SessionStart(tenant=self._start.tenant, session_id=self._start.session_id, carried=text)

    def change(self, **fields: Any) -> None:
        """Replaces fields of the state."""
        self.state = self.state.model_copy(update=fields)

    def set_head(self, **fields: Any) -> None:
        """Replaces fields of the head."""
        if "session_uid" in fields:
            self.change(created_at=workflow.now().isoformat())
        self.change(head=self.state.head.model_copy(update=fields))

    def adopt(self, head: Head) -> None:
        """Takes the head that the rows show."""
        self.change(head=head)

    def record(self, call_ids: Iterable[str], status: str) -> None:
        """Remembers that calls have their results."""
        for call_id in call_ids:
            self.change(recorded=remember(self.state.recorded, call_id, status))

    def enqueue(self, job: Job) -> None:
        """Puts a job behind the others. It stays part of the trace of what it came from."""
        trace = telemetry.here()
        self.change(queue=(*self.state.queue, job.model_copy(update={"trace": trace}) if trace else job))

    def note_refusal(self, refusal: RecordedRefusal) -> None:
        """Keeps a refused signal for the query."""
        self.change(refusals=(*self.state.refusals, refusal)[-KEPT_REFUSALS:])

    @property
    def revision(self) -> int:
        """The session's revision once everything that was accepted has begun: each turn's beginning is a change (S39)."""
        return self.state.head.revision + len(waiting_turns(self.state.queue))

    @property
    def closing(self) -> bool:
        """True from the moment on when the session's end is decided."""
        return self.closed or any(isinstance(job, QueuedClose) for job in self.state.queue)

    @property
    def rolling(self) -> bool:
        """True while the run waits for its last handlers. None may wait for a turn then: it would wait for ever."""
        return self.draining and self._live is None

    @property
    def owes(self) -> bool:
        """True while somebody waits for something that is queued."""
        return any(getattr(job, "ticket", "") for job in self.state.queue)

    @property
    def busy_turn(self) -> str | None:
        """The turn that runs, or the first that waits to run."""
        if self._live:
            return self._live.turn.turn_id
        return next((job.turn.turn_id for job in waiting_turns(self.state.queue)), None)

    def stoppable_turn(self, ended: str | None) -> str | None:
        """The turn that a cancel without a name means: the first that runs or waits, is not cancelled yet, and is not `ended` in the rows."""
        turns = [(turn.turn.turn_id, turn.cancelled) for turn in waiting_turns(self.state.queue)]
        if self._live and self._live.stoppable:
            turns.insert(0, (self._live.turn.turn_id, self._live.cancelled))
        turns = [(turn_id, cancelled) for turn_id, cancelled in turns if turn_id != ended]
        return next((turn_id for turn_id, cancelled in turns if not cancelled), turns[0][0] if turns else None)

    @property
    def busy(self) -> bool:
        """True while a turn runs or waits to run."""
        return self.busy_turn is not None

    @property
    def claimed(self) -> bool:
        """True once a session is somebody's: an accepted first input made it, or is about to. One that the rows refused made nothing, and
        whoever comes next is the first (R37).
        """
        head = self.state.head
        return head.born and bool(head.turn_number or head.leaf_id or self.busy or self.changing)

    @property
    def changing(self) -> bool:
        """True while a card, a change of fields or a repair is on its way into the rows, or steering that insists on a revision."""
        insists = any(steering.insists for steering in self.noting.values())
        return insists or any(isinstance(job, QueuedCard | QueuedAmend | QueuedRepair) for job in (self.under_way, *self.state.queue))

    def ends_soon(self, rows: RowsSaid | None) -> bool:
        """True if the rows may be ahead of this state, by the live turn's end or by a change: nothing is refused before that is known."""
        return self.changing or (self.live_turn is not None and (rows is None or self.ended_in(rows) is not None))

    def ended_in(self, rows: RowsSaid | None) -> str | None:
        """The live turn if the rows show its end already."""
        return self.live_turn if rows is not None and rows.ended_turn == self.live_turn else None

    def will_take(self, profile: str | None) -> bool:
        """True if a turn that waits will take steering of the profile (None: of any)."""
        return takes_steering(self.state.queue, profile)

    @property
    def live_turn(self) -> str | None:
        """The turn that runs."""
        return self._live.turn.turn_id if self._live else None

    @property
    def live(self) -> LiveTurn | None:
        """The turn that runs, with what it runs under."""
        return self._live

    async def note_steering(self, steering: NoteSteering) -> SteeringNoted:
        """Stores accepted steering beside whatever runs. What the rows say of it is news only if no turn has ended meanwhile."""
        turn_id = steering.own_turn_id or ""
        self.noting[turn_id] = steering
        try:
            while True:
                settled = self.settled
                noted = await written(note_steering, steering, "steering")
                if settled == self.settled:
                    return noted
        finally:
            del self.noting[turn_id]

    def knows_turn(self, turn_id: str | None, rows: RowsSaid | None) -> bool:
        """True if the turn runs, waits to run, is of the recent past, or was found in the rows."""
        last, state = self.state.head.last_turn, self.state
        known = {self.live_turn, last.turn.turn_id if last else None, *(recent.turn_id for recent in state.recent.values())}
        known |= {job.turn.turn_id for job in waiting_turns(state.queue)}
        return turn_id in known - {None, ""} or bool(turn_id and rows and rows.turn)

    def interrupt(self, *, everything: bool = False) -> None:
        """A message comes: the live turn ends, and messages that wait are recorded as cancelled, in their order. With `everything` the
        polite ones too.
        """
        if self._live:
            self._live.cancel()
        self.change(queue=interrupted(self.state.queue, everything=everything))

    def cancel_turn(self, turn_id: str) -> bool | None:
        """Cancels the named live or waiting turn. False: it was asked before. None: no such turn runs or waits, or it can't be stopped."""
        if self._live and self._live.turn.turn_id == turn_id:
            return self._live.cancel() if self._live.stoppable else None
        for job in waiting_turns(self.state.queue):
            if job.turn.turn_id == turn_id:
                self.change(queue=without(self.state.queue, job))
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
