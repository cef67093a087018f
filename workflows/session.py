"""THE MAIN FLOW: one workflow per session orders everything that happens to it.

Handlers judge an input against the state, record it and return; `run` takes what was recorded, one after the other. A turn runs beside the
handlers, so that a cancel or a message that arrives meanwhile is heard at once. Between turns the run continues as new before its history
gets long.
"""

import asyncio
from typing import Any

from temporalio import workflow

from workflows.asking import written
from workflows.contracts import telemetry
from workflows.contracts.inputs import (
    AmendInput,
    AmendReceipt,
    CancelInput,
    CancelReceipt,
    CardInput,
    CardReceipt,
    CloseInput,
    CloseReceipt,
    ContinuationInput,
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
from workflows.session_amends import SessionAmends
from workflows.session_chores import SessionChores
from workflows.session_clock import SessionClock
from workflows.session_desk import SessionDesk
from workflows.session_inputs import SessionInputs
from workflows.session_jobs import SessionJobs
from workflows.session_mending import SessionMending
from workflows.session_rollover import SessionRollover
from workflows.session_steering import SessionSteering


@workflow.defn(name=SESSION_WORKFLOW)
class SessionWorkflow:
    """One conversation, for as long as it lives."""

    jobs = SessionJobs
    inputs = SessionInputs

    @workflow.init
    def __init__(self, start: SessionStart) -> None:
        self._jobs = self.jobs(start)
        self._desk = SessionDesk(self._jobs, loaded=bool(start.carried))
        self._inputs = self.inputs(self._jobs)
        self._mending = SessionMending(self._jobs, self._inputs)
        self._steering = SessionSteering(self._jobs)
        self._amends = SessionAmends(self._jobs, self._inputs)
        self._chores = SessionChores(self._jobs)
        self._clock = SessionClock(self._jobs, self._inputs)
        self._rollover = SessionRollover(self._jobs)

    @workflow.run
    async def run(self, start: SessionStart) -> None:
        """Lives until it is deleted or expires, or a first input was refused and nothing came after it; else continues as new."""
        await self._load(start)
        with telemetry.apart():
            watches = [asyncio.create_task(watch) for watch in (self._clock.watch(), self._desk.watch(self._inputs.accept_result))]
        while not self._over():
            await workflow.wait_condition(lambda: bool(self._jobs.state.queue) or self._rollover.due() or self._over())
            if self._rollover.due():
                await self._rollover.roll()
            if self._jobs.state.queue:
                await self._chores.take_next()
        for watch in watches:
            watch.cancel()
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _load(self, start: SessionStart) -> None:
        """A first run asks the rows where the session stands; a later one was told. What can't be loaded is left to the run that the
        next input begins.
        """
        if self._desk.loaded:
            self._jobs.show_details()
            return
        which = LoadHead(tenant=start.tenant, session_id=start.session_id)
        try:
            self._jobs.adopt(await written(load_head, which, "where the rows stand"))
            self._desk.loaded = True
        except Exception:
            workflow.logger.exception("the session could not be loaded")
            self._desk.unloadable = self._desk.refused = True

    def _over(self) -> bool:
        unborn = self._desk.refused and not self._jobs.state.head.born and workflow.all_handlers_finished()
        return not self._jobs.state.queue and (self._jobs.closed or unborn)

    # What hosts send, as updates: judged, recorded, answered.

    @workflow.update(name="message")
    async def message(self, message: MessageInput) -> TurnReceipt:
        """A user's message (sessions.md, Order)."""
        return await self._desk.judge(self._inputs.message, message)

    @message.validator
    def check_message(self, message: MessageInput) -> None:
        """Refuses before history what the state decides."""
        self._desk.check(self._inputs.check_message_early, message)

    @workflow.update(name="continuation")
    async def continuation(self, continuation: ContinuationInput) -> TurnReceipt:
        """A host's result for the pending call. Waits a moment for a live turn to end, then is judged."""
        return await self._desk.judge(self._inputs.continuation, continuation)

    @continuation.validator
    def check_continuation(self, continuation: ContinuationInput) -> None:
        """Refuses before history what the state decides."""
        self._desk.check(self._inputs.check_continuation, continuation)

    @workflow.update(name="steer")
    async def steer(self, steer: SteerInput) -> SteerReceipt:
        """Words for the turn that runs, or for the next one."""
        return await self._desk.judge(self._steering.steer, steer)

    @steer.validator
    def check_steer(self, steer: SteerInput) -> None:
        """Refuses before history what the state decides."""
        self._desk.check(self._steering.check_steer, steer)

    @workflow.update(name="cancel")
    async def cancel(self, cancel: CancelInput) -> CancelReceipt:
        """Ends the live turn or the named one."""
        return await self._desk.judge(self._inputs.cancel, cancel)

    @cancel.validator
    def check_cancel(self, cancel: CancelInput) -> None:
        """Refuses before history what the state decides."""
        self._desk.check(self._inputs.check_cancel, cancel)

    @workflow.update(name="repair")
    async def repair(self, repair: RepairInput) -> RepairReceipt:
        """Resolves what is open as `unknown` and says what that was."""
        return await self._desk.judge(self._mending.repair, repair)

    @repair.validator
    def check_repair(self, repair: RepairInput) -> None:
        """Refuses before history what the state decides."""
        self._desk.check(self._mending.check_repair, repair)

    @workflow.update(name="retry")
    async def retry(self, retry: RetryInput) -> TurnReceipt:
        """Runs the failed step of the last turn again."""
        return await self._desk.judge(self._mending.retry, retry)

    @retry.validator
    def check_retry(self, retry: RetryInput) -> None:
        """Refuses before history what the state decides."""
        self._desk.check(self._mending.check_retry, retry)

    @workflow.update(name="card")
    async def card(self, card: CardInput) -> CardReceipt:
        """A host card, in the rows when it is answered."""
        return await self._desk.judge(self._amends.card, card)

    @card.validator
    def check_card(self, card: CardInput) -> None:
        """Refuses before history what the state decides."""
        self._desk.check(self._amends.check_card_early, card)

    @workflow.update(name="amend")
    async def amend(self, amend: AmendInput) -> AmendReceipt:
        """Title, owner or active leaf."""
        return await self._desk.judge(self._amends.amend, amend)

    @amend.validator
    def check_amend(self, amend: AmendInput) -> None:
        """Refuses before history what the state decides."""
        self._desk.check(self._amends.check_amend_early, amend)

    @workflow.update(name="close")
    async def close(self, close: CloseInput) -> CloseReceipt:
        """Deletes the session."""
        return await self._desk.judge(self._amends.close, close)

    @close.validator
    def check_close(self, close: CloseInput) -> None:
        """Refuses before history what the state decides."""
        self._desk.check(self._amends.check_close_early, close)

    # The same, as signals: what an update would refuse is recorded as a refusal. They take whatever payloads come, because a call that
    # does not fit a handler's signature would fail the workflow task, for ever.

    @workflow.signal(name="message")
    async def message_signal(self, *payloads: Any) -> None:
        """A user's message, from who reaches Temporal directly."""
        await self._desk.heed("message", self._inputs.message, MessageInput, payloads)

    @workflow.signal(name="continuation")
    async def continuation_signal(self, *payloads: Any) -> None:
        """A host's result."""
        await self._desk.heed_result("continuation", self._inputs.accept_result, payloads)

    @workflow.signal(name="host_result")
    async def host_result_signal(self, *payloads: Any) -> None:
        """A host's result, under the name that hosts use."""
        await self._desk.heed_result("host_result", self._inputs.accept_result, payloads)

    @workflow.signal(name="steer")
    async def steer_signal(self, *payloads: Any) -> None:
        """Words for the turn that runs, or for the next one."""
        await self._desk.heed("steer", self._steering.steer, SteerInput, payloads)

    @workflow.signal(name="cancel")
    async def cancel_signal(self, *payloads: Any) -> None:
        """Ends the live turn or the named one."""
        await self._desk.heed("cancel", self._inputs.cancel, CancelInput, payloads)

    @workflow.signal(name="roll")
    def roll(self, *_payloads: Any) -> None:
        """Makes the session continue as new as soon as it is idle."""
        self._jobs.roll_asked = True

    @workflow.query
    def head(self) -> Head:
        """Where the session stands."""
        return self._jobs.state.head

    @workflow.query
    def refusals(self) -> list[RecordedRefusal]:
        """The signals that were refused lately."""
        return list(self._jobs.state.refusals)
