"""Steering: words that join the live turn's next step, wait behind a pending action, or get a turn of their own."""

from temporalio import workflow

from workflows.contracts.carried import QueuedTurn, Steered
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import SteerInput, SteerReceipt
from workflows.contracts.turns import NoteSteering, SteeringNoted
from workflows.model.turn import TurnRef
from workflows.rules import admission
from workflows.rules.state import body_digest, profile_of, remember
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
            admission.check_same_body(steer.id, known.digest, steer.digest or body_digest(steer))
            return
        admission.check_binding(state.head, steer)
        admission.check_new_turn(steer.turn_id, self._jobs.knows_turn(steer.turn_id, steer.rows))
        if not self._jobs.ends_soon(steer.rows):
            admission.check_revision(self._jobs.revision, steer)

    async def steer(self, steer: SteerInput) -> SteerReceipt:
        """Notes the words and answers where they went. The same id twice is the same steering (R154)."""
        self.check_steer(steer)
        steering_id = steer.id or str(workflow.uuid4())
        digest = steer.digest or body_digest(steer)
        if steering_id in self._jobs.state.steered:
            return await self._repeated(steering_id)
        self._remember(steering_id, Steered(digest=digest))
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
            )
        )
        receipt = self._delivered(steering_id, steer.profile, own_turn_id, noted)
        self._remember(steering_id, Steered(digest=digest, receipt=receipt))
        return receipt

    async def _repeated(self, steering_id: str) -> SteerReceipt:
        await workflow.wait_condition(lambda: self._jobs.state.steered[steering_id].receipt is not None)
        receipt = self._jobs.state.steered[steering_id].receipt
        assert receipt is not None, "just waited for"
        return receipt

    def _remember(self, steering_id: str, steered: Steered) -> None:
        self._jobs.change(steered=remember(self._jobs.state.steered, steering_id, steered))

    def _delivered(self, steering_id: str, profile: str | None, own_turn_id: str, noted: SteeringNoted) -> SteerReceipt:
        jobs = self._jobs
        uid = jobs.state.head.session_uid
        live = jobs.live_turn
        joins_live = noted.running_profile is not None and profile in (None, noted.running_profile)
        not_seen_yet = live is not None and live != noted.newest_turn
        if noted.waiting or joins_live or not_seen_yet or jobs.will_consume(profile):
            return SteerReceipt(steering_id=steering_id, delivery="queued", session_uid=uid)
        turn = TurnRef(
            turn_id=own_turn_id,
            number=0,
            kind="steering",
            message_id=str(workflow.uuid4()),
            accepted_at=workflow.now().isoformat(),
        )
        jobs.enqueue(QueuedTurn(turn=turn, profile=profile_of(jobs.state.head, profile)))
        return SteerReceipt(steering_id=steering_id, delivery="promoted", session_uid=uid, turn_id=turn.turn_id)
