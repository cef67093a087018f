"""Steering: words that join the live turn's next step, wait behind a pending action, or get a turn of their own."""

from temporalio import workflow

from workflows.contracts.carried import Steered
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import SteerInput, SteerReceipt
from workflows.contracts.turns import NoteSteering, SteeringNoted
from workflows.room import check_room
from workflows.rules import admission
from workflows.rules.state import forget, named_digest, remember
from workflows.session_jobs import SessionJobs


class SessionSteering:
    """Accepts steering. It is in the rows before it is answered: whether the live turn still takes it is decided there."""

    def __init__(self, jobs: SessionJobs) -> None:
        self._jobs = jobs

    def check_steer(self, steer: SteerInput) -> None:
        """Raises Refusal for who may not, and for an id that came with another body."""
        admission.check_shape(steer)
        if not steer.content:
            raise Refusal("bad_request", "steering needs content")
        state = self._jobs.state
        admission.check_owner(state.head, steer)
        if known := state.steered.get(steer.id):
            admission.check_same_body(steer.id, known.digest, named_digest(steer))
            return
        admission.check_binding(state.head, steer)
        check_room(state.queue, self._jobs.updates)
        admission.check_new_turn(steer.turn_id, self._jobs.knows_turn(steer.turn_id, steer.rows))
        if not self._jobs.ends_soon(steer.rows):
            admission.check_revision(self._jobs.revision, steer)

    async def steer(self, steer: SteerInput) -> SteerReceipt:
        """Notes the words and answers where they went. The same id twice is the same steering (R154)."""
        self.check_steer(steer)
        steering_id = steer.id or str(workflow.uuid4())
        digest = named_digest(steer)
        if steering_id in self._jobs.state.steered:
            return await self._repeated(steering_id, steer)
        self._remember(steering_id, Steered(digest=digest))
        try:
            receipt = await self._note(steering_id, digest, steer)
        except BaseException:
            self._jobs.change(steered=forget(self._jobs.state.steered, steering_id))
            raise
        self._remember(steering_id, Steered(digest=digest, receipt=receipt))
        return receipt

    async def _note(self, steering_id: str, digest: str, steer: SteerInput) -> SteerReceipt:
        own_turn_id = steer.turn_id or str(workflow.uuid4())
        noted = await self._jobs.note_steering(
            NoteSteering(
                session=self._jobs.ref,
                id=steering_id,
                content=steer.content,
                digest=digest,
                profile=steer.profile,
                accepted_at=workflow.now().isoformat(),
                own_turn_id=own_turn_id,
                insists=steer.expected_revision is not None,
                number=self._next_number(),
            )
        )
        if self._jobs.closing:
            raise admission.CLOSED
        return self._delivered(steering_id, steer.profile, own_turn_id, noted)

    def _next_number(self) -> int:
        """Its place in the order of acceptance: microseconds since 1970, one more than the last where several came in one moment. So it is
        behind whatever the rows have of runs that are gone.
        """
        number = max(self._jobs.state.steering_number + 1, int(workflow.now().timestamp() * 1_000_000))
        self._jobs.change(steering_number=number)
        return number

    async def _repeated(self, steering_id: str, steer: SteerInput) -> SteerReceipt:
        """The answer of the first. If that came to nothing, its id is free again, and this one is judged as if it were the first."""
        await workflow.wait_condition(lambda: self._receipt(steering_id) is not None or steering_id not in self._jobs.state.steered)
        if receipt := self._receipt(steering_id):
            return receipt
        if self._jobs.closing:
            raise admission.CLOSED
        return await self.steer(steer)

    def _receipt(self, steering_id: str) -> SteerReceipt | None:
        steered = self._jobs.state.steered.get(steering_id)
        return steered.receipt if steered else None

    def _remember(self, steering_id: str, steered: Steered) -> None:
        self._jobs.change(steered=remember(self._jobs.state.steered, steering_id, steered))

    def _delivered(self, steering_id: str, profile: str | None, own_turn_id: str, noted: SteeringNoted) -> SteerReceipt:
        jobs = self._jobs
        uid = jobs.state.head.session_uid
        if noted.waiting or noted.taken or self._joins(profile, noted) or jobs.will_take(profile):
            return SteerReceipt(steering_id=steering_id, delivery="queued", session_uid=uid)
        jobs.enqueue_steering(own_turn_id, profile)
        return SteerReceipt(steering_id=steering_id, delivery="promoted", session_uid=uid, turn_id=own_turn_id)

    def _joins(self, profile: str | None, noted: SteeringNoted) -> bool:
        """True if a turn of the profile runs in the rows, or is live and has yet to begin there (R151)."""
        if noted.running_profile is not None and profile in (None, noted.running_profile):
            return True
        live = self._jobs.live
        if live is None or profile not in (None, live.profile):
            return False
        return (live.turn.turn_id, live.turn.attempt) != (noted.newest_turn, noted.newest_attempt)
