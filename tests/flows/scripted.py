"""Activities by contract name that do as a test tells them, and a session's workflow on a real Temporal server around them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from uuid import uuid4

from temporalio import activity
from temporalio.client import Client, WithStartWorkflowOperation, WorkflowHandle, WorkflowUpdateFailedError, WorkflowUpdateStage
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from tests.services import PATIENCE_SECONDS
from worker import WORKFLOWS, flow_digest, workflow_runner
from workflows.contracts.erasures import DeleteRuns, Erased, EraseHistories, ErasePayloads, EraseRows, FoundRuns, VerifyErasure
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import ContinuationInput, Input, MessageInput, SessionStart
from workflows.contracts.sessions import AmendSession, PostCard, Remind, Written
from workflows.contracts.steps import RunStep, StepDone
from workflows.contracts.tools import RunTool, SettleCall, ToolDone
from workflows.contracts.turns import (
    CallsRepaired,
    EndTurn,
    HandOver,
    LoadHead,
    NoteSteering,
    RecordRefusal,
    RepairCalls,
    SteeringNoted,
    TurnEnded,
)
from workflows.model.call import OpenCall
from workflows.model.state import Head
from workflows.model.turn import TurnError

_SHORT = timedelta(seconds=0.1)
AGAIN = (RPCStatusCode.RESOURCE_EXHAUSTED, RPCStatusCode.FAILED_PRECONDITION, "rolling")
AT = "2026-01-01T00:00:00+00:00"
Script = Callable[[RunStep], Awaitable[StepDone]]


async def answers(_: RunStep) -> StepDone:
    """The model answers at once."""
    return StepDone(state="answered", at=AT)


def asks_host(*call_ids: str) -> Script:
    """The model asks for these host calls in a turn that a message began, and answers otherwise."""

    async def script(step: RunStep) -> StepDone:
        if step.turn.kind == "continuation":
            return StepDone(state="answered", at=AT)
        calls = tuple(OpenCall(call_id=call_id, tool_name="open_page", category="host") for call_id in call_ids)
        return StepDone(state="paused", host_calls=calls, at=AT)

    return script


@dataclass
class Scripted:
    """Records what the workflow asks for. `step` decides what a model step comes to; `handing` and `noting` what these writes say."""

    step: Script = answers
    tool: Callable[[RunTool], ToolDone] = lambda call: ToolDone(call_id=call.call.call_id, output="1", at=AT)
    handing: Callable[[HandOver], Awaitable[TurnEnded]] | None = None
    noting: Callable[[NoteSteering], Awaitable[SteeringNoted]] | None = None
    written: Written = field(default_factory=Written)
    head: Head = field(default_factory=lambda: Head(default_profile="default", indexed=True))
    asked: list[Any] = field(default_factory=list)

    @property
    def steps(self) -> list[RunStep]:
        return [asked for asked in self.asked if isinstance(asked, RunStep)]

    def of(self, kind: type[Any]) -> list[Any]:
        return [asked for asked in self.asked if type(asked) is kind]

    @activity.defn
    async def run_step(self, step: RunStep) -> StepDone:
        self.asked.append(step)
        beats = asyncio.create_task(_beat())
        try:
            return cancelled() if step.cancelled else await self.step(step)
        except asyncio.CancelledError:
            return cancelled()
        finally:
            beats.cancel()

    @activity.defn
    async def run_tool(self, call: RunTool) -> ToolDone:
        self.asked.append(call)
        return self.tool(call)

    @activity.defn
    async def settle_call(self, call: SettleCall) -> ToolDone:
        self.asked.append(call)
        return ToolDone(call_id=call.call.call_id, outcome="interrupted", status=call.status, at=AT)

    @activity.defn
    async def hand_over(self, step: HandOver) -> TurnEnded:
        self.asked.append(step)
        return await self.handing(step) if self.handing else TurnEnded(at=AT)

    @activity.defn
    async def end_turn(self, end: EndTurn) -> TurnEnded:
        self.asked.append(end)
        return TurnEnded(at=AT)

    @activity.defn
    async def repair_calls(self, repair: RepairCalls) -> CallsRepaired:
        self.asked.append(repair)
        return CallsRepaired()

    @activity.defn
    async def note_steering(self, steering: NoteSteering) -> SteeringNoted:
        self.asked.append(steering)
        return await self.noting(steering) if self.noting else SteeringNoted()

    @activity.defn
    async def record_refusal(self, refused: RecordRefusal) -> None:
        self.asked.append(refused)

    @activity.defn
    async def post_card(self, card: PostCard) -> Written:
        self.asked.append(card)
        return self.written

    @activity.defn
    async def amend_session(self, change: AmendSession) -> Written:
        self.asked.append(change)
        return Written()

    @activity.defn
    async def remind(self, reminder: Remind) -> None:
        self.asked.append(reminder)

    @activity.defn
    async def erase_rows(self, erase: EraseRows) -> Erased:
        self.asked.append(erase)
        return Erased()

    @activity.defn
    async def find_runs(self, erase: EraseHistories) -> FoundRuns:
        self.asked.append(erase)
        return FoundRuns()

    @activity.defn
    async def delete_runs(self, delete: DeleteRuns) -> None:
        self.asked.append(delete)

    @activity.defn
    async def erase_payloads(self, erase: ErasePayloads) -> None:
        self.asked.append(erase)

    @activity.defn
    async def verify_erasure(self, verify: VerifyErasure) -> Erased:
        return Erased(verified=True)

    @activity.defn
    async def load_head(self, which: LoadHead) -> Head:
        self.asked.append(which)
        return self.head

    @property
    def activities(self) -> list[Callable[..., Any]]:
        return [
            self.run_step,
            self.run_tool,
            self.settle_call,
            self.hand_over,
            self.end_turn,
            self.repair_calls,
            self.note_steering,
            self.record_refusal,
            self.load_head,
            self.post_card,
            self.amend_session,
            self.remind,
            self.erase_rows,
            self.find_runs,
            self.delete_runs,
            self.erase_payloads,
            self.verify_erasure,
        ]


def cancelled() -> StepDone:
    """A step that a cancel ended."""
    return StepDone(state="cancelled", error=TurnError.of("cancelled", "cancelled"), at=AT)


async def _beat() -> None:
    while True:
        activity.heartbeat()
        await asyncio.sleep(0.1)


@dataclass
class Session:
    """One session on the server, and its inputs."""

    client: Client
    queue: str
    id: str = field(default_factory=lambda: f"flow-{uuid4().hex[:12]}")

    @property
    def workflow_id(self) -> str:
        return f"session/default/{self.id}"

    @property
    def handle(self) -> "WorkflowHandle[Any, Any]":
        return self.client.get_workflow_handle(self.workflow_id)

    async def send(self, update: str, asked: Input, *, update_id: str | None = None) -> dict[str, Any]:
        """An update-with-start, sent again while the server asks for that. Raises Refusal."""
        update_id = update_id or str(uuid4())
        while True:
            try:
                return await self._once(update, asked, update_id)
            except (RPCError, Refusal) as error:
                if (error.code if isinstance(error, Refusal) else error.status) not in AGAIN:
                    raise
                await asyncio.sleep(0.02)

    async def _once(self, update: str, asked: Input, update_id: str) -> dict[str, Any]:
        start: WithStartWorkflowOperation[Any, None] = WithStartWorkflowOperation(
            "SessionWorkflow",
            SessionStart(tenant="default", session_id=self.id),
            id=self.workflow_id,
            task_queue=self.queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        )
        try:
            handle = await self.client.start_update_with_start_workflow(
                update,
                asked,
                id=update_id,
                wait_for_stage=WorkflowUpdateStage.COMPLETED,
                start_workflow_operation=start,
                result_type=dict,
            )
            answer: dict[str, Any] = await handle.result()
        except WorkflowUpdateFailedError as error:
            assert isinstance(error.cause, ApplicationError)
            if error.cause.type == "Refusal":
                raise Refusal.from_failure(error.cause) from error
            raise
        return answer

    async def say(self, content: str = "hello", **fields: Any) -> dict[str, Any]:
        return await self.send("message", MessageInput(content=content, **fields))

    async def answer(self, call_id: str, **fields: Any) -> dict[str, Any]:
        return await self.send("continuation", ContinuationInput(tool_call_id=call_id, tool_result={"ok": True}, **fields))

    async def head(self) -> Head:
        return await self.handle.query("head", result_type=Head)  # type: ignore[no-any-return]

    async def until(self, fits: Callable[[Head], bool]) -> Head:
        """Waits until the head fits."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not fits(head := await self.head()):
                await asyncio.sleep(0.02)
        return head


@asynccontextmanager
async def session_with(client: Client, scripted: Scripted, *instead: type[Any]) -> AsyncIterator[Session]:
    """A session whose worker runs the scripted activities, and other workflows `instead` of the worker's, if they are given."""
    queue = f"flows-{uuid4().hex[:12]}"
    async with Worker(
        client,
        task_queue=queue,
        workflows=instead or WORKFLOWS,
        build_id=flow_digest(),
        activities=scripted.activities,
        workflow_runner=workflow_runner(),
        max_heartbeat_throttle_interval=_SHORT,
        default_heartbeat_throttle_interval=_SHORT,
    ):
        yield Session(client, queue)


async def refused(work: Awaitable[Any]) -> Refusal:
    """The refusal that `work` must end in."""
    try:
        answer = await work
    except Refusal as refusal:
        return refusal
    raise AssertionError(f"accepted: {answer}")


async def ended(session: Session, turns: int) -> None:
    """Waits until the session has had so many turns."""
    await session.until(lambda head: head.turn_number == turns)
