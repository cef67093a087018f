"""Addresses session workflows: updates with a bounded, patient retry on one update id, and the query for where a session stands."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from temporalio.client import (
    Client,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.db.client import forget_failure, session_start
from api.errors import not_found
from api.temporal import Pulse
from workflows.contracts import telemetry
from workflows.contracts.errors import REFUSAL, Refusal, ServiceUnavailable
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
    Input,
    MessageInput,
    RepairInput,
    RepairReceipt,
    RetryInput,
    SteerInput,
    SteerReceipt,
    TurnReceipt,
)
from workflows.contracts.naming import session_workflow_id
from workflows.model.base import Record
from workflows.model.state import Head

PATIENCE_SECONDS = 8.0
"""How long an input is offered before the answer is 503 (a hanging server must not take longer than 10 s to show)."""

BUSY_SECONDS = 60.0
"""How long it is offered where Temporal answers and a worker is there: a burst of sessions that begin takes the worker's time."""

PROBE_SECONDS = 4.0
"""So long before the patience ends the api looks which of the two it is: on a machine that has much to do the look takes long too."""

DOWN_SECONDS = 2.0
"""How long a Temporal that refuses connections, or answers with faults of its own, is asked again."""

FIRST_DELAY_SECONDS = 0.02
LAST_DELAY_SECONDS = 0.5
AT_ONCE = 4
"""Updates that one process has in flight for one session. Temporal takes ten from all of them, and refuses more (L4)."""

_BUSY = (RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.FAILED_PRECONDITION)
_FAULTS = (RPCStatusCode.UNAVAILABLE, RPCStatusCode.INTERNAL, RPCStatusCode.UNKNOWN, RPCStatusCode.ABORTED, RPCStatusCode.DATA_LOSS)
"""Temporal's own, whatever was asked of it: what it hides from clients behind "please retry" is one of them."""
_UNREACHED = "Temporal can't be reached"
_ROLLED_OVER = "AcceptedUpdateCompletedWorkflow"
_R = TypeVar("_R", bound=Record)


class Workflows:
    """Session workflows, by tenant and session id.

    Each method raises Refusal for what the session refused (`not_found` if there is no such session), and ServiceUnavailable
    where Temporal, or Postgres or S3 for a large payload, is not there.
    """

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue
        self._pulse = Pulse(client, task_queue, PROBE_SECONDS * 0.9)
        self._turnstiles: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def message(self, session_id: str, message: MessageInput) -> TurnReceipt:
        """Submits a message; the session is started if need be. Twice the same is once, also while no row of it is there yet: its
        workflow knows it. An update id that says what it is would not do: a run that has ended, whose session was deleted, answers to it.
        """
        return await self._update(session_id, "message", message, TurnReceipt, f"message/{uuid4()}", start=True)

    async def continuation(self, session_id: str, result: ContinuationInput) -> TurnReceipt:
        """Submits a host's result."""
        return await self._once(session_id, "continuation", result, TurnReceipt)

    async def cancel(self, session_id: str, cancel: CancelInput) -> CancelReceipt:
        """Cancels the live turn or the named one."""
        return await self._once(session_id, "cancel", cancel, CancelReceipt)

    async def repair(self, session_id: str, repair: RepairInput) -> RepairReceipt:
        """Resolves everything that is open."""
        return await self._once(session_id, "repair", repair, RepairReceipt)

    async def steer(self, session_id: str, steer: SteerInput) -> SteerReceipt:
        """Submits steering."""
        return await self._once(session_id, "steer", steer, SteerReceipt)

    async def card(self, session_id: str, card: CardInput) -> CardReceipt:
        """Posts a host card; the session is started if need be."""
        return await self._update(session_id, "card", card, CardReceipt, f"card/{uuid4()}", start=True)

    async def amend(self, session_id: str, amend: AmendInput) -> AmendReceipt:
        """Changes title, owner or active leaf."""
        return await self._once(session_id, "amend", amend, AmendReceipt)

    async def close(self, session_id: str, close: CloseInput) -> CloseReceipt:
        """Deletes the session."""
        return await self._once(session_id, "close", close, CloseReceipt)

    async def retry(self, session_id: str, retry: RetryInput) -> TurnReceipt:
        """Runs the failed step of the last turn again."""
        return await self._once(session_id, "retry", retry, TurnReceipt)

    async def head(self, tenant: str, session_id: str) -> Head:
        """Where a session stands that may have no rows yet. Raises the refusal `not_found` if nobody has begun it."""
        handle = self._client.get_workflow_handle(session_workflow_id(tenant, session_id))
        try:
            head: Head = await handle.query("head", result_type=Head, rpc_timeout=timedelta(seconds=PATIENCE_SECONDS))
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                raise not_found() from error
            raise ServiceUnavailable("temporal", "Temporal does not say where the session stands") from error
        except (WorkflowQueryFailedError, RuntimeError) as error:
            raise ServiceUnavailable("temporal", "the session can't be asked now") from error
        if not head.born:
            raise not_found()
        return head

    async def _once(self, session_id: str, name: str, payload: Input, answer: type[_R]) -> _R:
        """An update of its own id. A session with rows may have no running workflow, so one is started; without rows it must be there."""
        return await self._update(session_id, name, payload, answer, f"{name}/{uuid4()}", start=_has_rows(payload))

    async def _update(self, session_id: str, name: str, payload: Input, answer: type[_R], update_id: str, *, start: bool) -> _R:
        telemetry.identify(tenant=payload.tenant, session_id=session_id)
        workflow_id = session_workflow_id(payload.tenant, session_id)
        turnstile = self._turnstiles.setdefault(workflow_id, asyncio.Semaphore(AT_ONCE))

        async def offer(life: int) -> _R:
            if not start or (_has_rows(payload) and not life):
                try:
                    taken: _R = await self._client.get_workflow_handle(workflow_id).execute_update(
                        name, payload, id=update_id, result_type=answer
                    )
                    return taken
                except RPCError as error:
                    if not start or error.status != RPCStatusCode.NOT_FOUND:
                        raise
            return await self._begin(session_id, name, payload, answer, f"{update_id}/{life}" if life else update_id)

        sent = False
        try:
            async with asyncio.timeout(PATIENCE_SECONDS) as limit, self._more_patience(limit), turnstile:
                sent = True
                return await _until_taken(offer, absent_again=start)
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise ServiceUnavailable("temporal", "the session did not answer in time", maybe_happened=sent) from error

    async def _begin(self, session_id: str, name: str, payload: Input, answer: type[_R], update_id: str) -> _R:
        """An update of a workflow that is started unless it runs. Temporal takes longer for that than for an update alone."""
        summary = f"conversation of {payload.principal}, tenant {payload.tenant}"
        operation = session_start(payload.tenant, session_id, self._task_queue, summary)
        try:
            taken: _R = await self._client.execute_update_with_start_workflow(
                name, payload, id=update_id, result_type=answer, start_workflow_operation=operation
            )
        except BaseException:
            await forget_failure(operation)
            raise
        return taken

    @asynccontextmanager
    async def _more_patience(self, limit: asyncio.Timeout) -> AsyncIterator[None]:
        """Moves the limit on while Temporal answers and a worker asks for work: then the session is not lost, its worker has much to do."""
        watch = asyncio.create_task(self._watch(limit))
        try:
            yield
        finally:
            watch.cancel()

    async def _watch(self, limit: asyncio.Timeout) -> None:
        clock = asyncio.get_running_loop().time
        last = clock() + BUSY_SECONDS
        while (due := limit.when()) is not None and due < last:
            await asyncio.sleep(max(0.0, due - clock() - PROBE_SECONDS))
            if not await self._pulse.beats() or limit.expired():
                return
            limit.reschedule(min(clock() + PATIENCE_SECONDS, last))


def _has_rows(payload: Input) -> bool:
    """Whether the api saw rows of the session."""
    return payload.rows is not None and payload.rows.session_uid is not None


async def _until_taken(offer: Callable[[int], Awaitable[_R]], *, absent_again: bool) -> _R:
    """Offers one update until the workflow has judged it. Temporal refuses for a moment at ten in flight, at a rollover, while down.

    A session that is being deleted lets go of its id: what comes then is for the next life of the id, under an update id of its own,
    since Temporal remembers the old one's answer.
    """
    life = 0
    delay = FIRST_DELAY_SECONDS
    clock = asyncio.get_running_loop().time
    down_since: float | None = None
    while True:
        fault: str | None = None
        try:
            return await offer(life)
        except WorkflowUpdateFailedError as error:
            if not _rolled_over(error):
                life += _lives_gone(error, absent_again)
        except RPCError as error:
            fault = _fault(error, absent_again)
        except RuntimeError as error:
            if "connect" not in str(error):
                raise
            fault = _UNREACHED
        down_since = (down_since or clock()) if fault else None
        if fault and down_since is not None and clock() - down_since > DOWN_SECONDS:
            raise ServiceUnavailable("temporal", fault, maybe_happened=True)
        await asyncio.sleep(delay)
        delay = min(delay * 1.5, LAST_DELAY_SECONDS)


def _lives_gone(error: WorkflowUpdateFailedError, absent_again: bool) -> int:
    """How many lives of the id are over, if the input is to be offered again: a session is about to roll, or being deleted. Raises what
    the session made of any other input.
    """
    judged = _judged(error)
    code = judged.code if isinstance(judged, Refusal) else None
    if code not in ("closed", "rolling"):
        raise judged from error
    if code == "closed" and not absent_again:
        raise not_found() from error
    return int(code == "closed")


def _fault(error: RPCError, absent_again: bool) -> str | None:
    """In one line how Temporal is not there or at fault; None if it is only busy for a moment. Raises what no repetition changes."""
    if error.status == RPCStatusCode.NOT_FOUND:
        if absent_again:
            return None
        raise not_found() from error
    if error.status not in (*_BUSY, *_FAULTS):
        raise ServiceUnavailable("temporal", f"Temporal refused: {error.message}", maybe_happened=True) from error
    if error.status in _BUSY:
        return None
    return _UNREACHED if error.status == RPCStatusCode.UNAVAILABLE else f"Temporal failed: {error.message}"


def _rolled_over(error: WorkflowUpdateFailedError) -> bool:
    """The run ended while the handler was waiting; the input, if it was taken, is in the next run's state, which is asked."""
    return isinstance(error.cause, ApplicationError) and error.cause.type == _ROLLED_OVER


def _judged(error: WorkflowUpdateFailedError) -> Exception:
    cause = error.cause
    if isinstance(cause, ApplicationError) and cause.type == REFUSAL:
        return Refusal.from_failure(cause)
    return RuntimeError(f"the session failed on an input: {cause}")
