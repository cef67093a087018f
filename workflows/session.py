"""THE MAIN FLOW: one workflow per session orders everything that happens to it.

Handlers judge an input against the state, record it and return; `run` takes what was recorded, one after the other. A turn runs beside the
handlers, so that a cancel or a message that arrives meanwhile is heard at once. Between turns the run continues as new before its history
gets long.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.asking import written
from workflows.contracts import policies
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import (
    CancelInput,
    CancelReceipt,
    ContinuationInput,
    Input,
    MessageInput,
    RecordedRefusal,
    RepairInput,
    RepairReceipt,
    RetryInput,
    SessionStart,
    SteerInput,
    SteerReceipt,
    TurnReceipt,
)
from workflows.contracts.naming import SESSION_WORKFLOW
from workflows.contracts.turns import LoadHead, load_head
from workflows.model.state import Head
from workflows.rules.state import QueuedRefusal
from workflows.session_inputs import SessionInputs
from workflows.session_jobs import SessionJobs
from workflows.session_steering import SessionSteering

Asked = TypeVar("Asked", bound=Input)
Answer = TypeVar("Answer")


@workflow.defn(name=SESSION_WORKFLOW)
class SessionWorkflow:
    """One conversation, for as long as it lives."""

    @workflow.init
    def __init__(self, start: SessionStart) -> None:
        self._jobs = SessionJobs(start)
        self._inputs = SessionInputs(self._jobs)
        self._steering = SessionSteering(self._jobs)
        self._loaded = bool(start.carried)
        self._unloadable = False
        self._refused = False

    @workflow.run
    async def run(self, start: SessionStart) -> None:
        """Lives until a first input was refused and nothing came after it; otherwise continues as new for ever."""
        await self._load(start)
        while True:
            await workflow.wait_condition(lambda: bool(self._jobs.state.queue) or self._due_to_roll() or self._unborn_and_refused())
            if self._jobs.state.queue:
                await self._jobs.take_next()
            elif self._unborn_and_refused():
                return
            if self._due_to_roll():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self._jobs.carried())

    async def _load(self, start: SessionStart) -> None:
        """A first run asks the rows where the session stands; a later one was told. What can't be loaded is left to the run that the
        next input begins.
        """
        if self._loaded:
            return
        which = LoadHead(tenant=start.tenant, session_id=start.session_id)
        try:
            self._jobs.adopt(await written(load_head, which, "where the rows stand"))
            self._loaded = True
        except Exception:
            workflow.logger.exception("the session could not be loaded")
            self._unloadable = self._refused = True

    async def _until_loaded(self) -> None:
        await workflow.wait_condition(lambda: self._loaded or self._unloadable)
        if self._unloadable:
            raise RuntimeError("the session could not be loaded")

    def _due_to_roll(self) -> bool:
        info = workflow.info()
        return self._jobs.state.head.born and (
            self._jobs.roll_asked
            or info.is_continue_as_new_suggested()
            or info.get_current_history_length() >= policies.ROLL_EVENTS
            or info.get_current_history_size() >= policies.ROLL_BYTES
            or self._inputs.accepted >= policies.ROLL_UPDATES
        )

    def _unborn_and_refused(self) -> bool:
        return self._refused and not self._jobs.state.head.born and not self._jobs.state.queue and workflow.all_handlers_finished()

    # What hosts send, as updates: judged, recorded, answered.

    @workflow.update(name="message")
    async def message(self, message: MessageInput) -> TurnReceipt:
        """A user's message (sessions.md, Order)."""
        return await self._judge(self._inputs.message, message)

    @message.validator
    def check_message(self, message: MessageInput) -> None:
        """Refuses before history what the state decides."""
        self._refuse(self._inputs.check_message, message)

    @workflow.update(name="continuation")
    async def continuation(self, continuation: ContinuationInput) -> TurnReceipt:
        """A host's result for the pending call. Waits a moment for a live turn to end, then is judged."""
        return await self._judge(self._inputs.continuation, continuation)

    @continuation.validator
    def check_continuation(self, continuation: ContinuationInput) -> None:
        """Refuses before history what the state decides."""
        self._refuse(self._inputs.check_continuation, continuation)

    @workflow.update(name="steer")
    async def steer(self, steer: SteerInput) -> SteerReceipt:
        """Words for the turn that runs, or for the next one."""
        return await self._judge(self._steering.steer, steer)

    @steer.validator
    def check_steer(self, steer: SteerInput) -> None:
        """Refuses before history what the state decides."""
        self._refuse(self._steering.check_steer, steer)

    @workflow.update(name="cancel")
    async def cancel(self, cancel: CancelInput) -> CancelReceipt:
        """Ends the live turn or the named one."""
        return await self._judge(self._inputs.cancel, cancel)

    @cancel.validator
    def check_cancel(self, cancel: CancelInput) -> None:
        """Refuses before history what the state decides."""
        self._refuse(self._inputs.check_cancel, cancel)

    @workflow.update(name="repair")
    async def repair(self, repair: RepairInput) -> RepairReceipt:
        """Resolves what is open as `unknown` and says what that was."""
        return await self._judge(self._inputs.repair, repair)

    @repair.validator
    def check_repair(self, repair: RepairInput) -> None:
        """Refuses before history what the state decides."""
        self._refuse(self._inputs.check_repair, repair)

    @workflow.update(name="retry")
    async def retry(self, retry: RetryInput) -> TurnReceipt:
        """Runs the failed step of the last turn again."""
        return await self._judge(self._inputs.retry, retry)

    @retry.validator
    def check_retry(self, retry: RetryInput) -> None:
        """Refuses before history what the state decides."""
        self._refuse(self._inputs.check_retry, retry)

    def _refuse(self, check: Callable[[Asked], None], asked: Asked) -> None:
        """A session that is not born or not loaded yet has no state that could decide; the handler will."""
        if not (self._loaded and self._jobs.state.head.born):
            return
        try:
            check(asked)
        except Refusal as refusal:
            raise refusal.as_failure() from None

    async def _judge(self, judge: Callable[[Asked], Awaitable[Answer]], asked: Asked) -> Answer:
        """Nothing but a refusal or an answer leaves a handler: an unexpected exception would be retried for ever."""
        try:
            await self._until_loaded()
            return await judge(asked)
        except Refusal as refusal:
            self._refused = True
            raise refusal.as_failure() from None
        except (ApplicationError, workflow.ContinueAsNewError):
            raise
        except Exception as error:
            self._refused = True
            workflow.logger.exception("an input failed unexpectedly")
            raise ApplicationError(f"{type(error).__name__} while the input was judged", type="Internal", non_retryable=True) from error

    # The same, as signals: what an update would refuse is recorded as a refusal.

    @workflow.signal(name="message")
    async def message_signal(self, message: MessageInput) -> None:
        """A user's message, from who reaches Temporal directly."""
        await self._heed("message", self._inputs.message, message)

    @workflow.signal(name="continuation")
    async def continuation_signal(self, continuation: ContinuationInput) -> None:
        """A host's result."""
        await self._heed("continuation", self._inputs.patient_continuation, continuation)

    @workflow.signal(name="host_result")
    async def host_result_signal(self, continuation: ContinuationInput) -> None:
        """A host's result, under the name that hosts use."""
        await self._heed("host_result", self._inputs.patient_continuation, continuation)

    @workflow.signal(name="steer")
    async def steer_signal(self, steer: SteerInput) -> None:
        """Words for the turn that runs, or for the next one."""
        await self._heed("steer", self._steering.steer, steer)

    @workflow.signal(name="cancel")
    async def cancel_signal(self, cancel: CancelInput) -> None:
        """Ends the live turn or the named one."""
        await self._heed("cancel", self._inputs.cancel, cancel)

    @workflow.signal(name="roll")
    def roll(self) -> None:
        """Makes the session continue as new as soon as it is idle."""
        self._jobs.roll_asked = True

    async def _heed(self, what: str, judge: Callable[[Asked], Awaitable[object]], asked: Asked) -> None:
        try:
            await self._until_loaded()
            await judge(asked)
        except Refusal as refusal:
            self._note_refusal(what, refusal.code, refusal.message)
        except Exception as error:
            workflow.logger.exception("a signal failed unexpectedly")
            self._note_refusal(what, "internal", f"{type(error).__name__} while the signal was judged")

    def _note_refusal(self, what: str, code: str, message: str) -> None:
        self._refused = True
        refusal = RecordedRefusal(what=what, code=code, message=message, at=workflow.now().isoformat())
        self._jobs.note_refusal(refusal)
        if self._jobs.state.head.born:
            self._jobs.enqueue(QueuedRefusal(refusal=refusal))

    @workflow.query
    def head(self) -> Head:
        """Where the session stands."""
        return self._jobs.state.head

    @workflow.query
    def refusals(self) -> list[RecordedRefusal]:
        """The signals that were refused lately."""
        return list(self._jobs.state.refusals)
