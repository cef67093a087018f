"""A session's workflow that does what its inputs say, for tests of how the api addresses one. It has no rows."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from temporalio import workflow
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from activities.db.client import data_converter
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import (
    CancelInput,
    CancelReceipt,
    ContinuationInput,
    MessageInput,
    RepairInput,
    RepairReceipt,
    RetryInput,
    SessionStart,
    TurnReceipt,
)
from workflows.contracts.naming import SESSION_WORKFLOW
from workflows.model.state import Head

UID = "00000000-0000-4000-8000-000000000001"
FACTS: dict[str, dict[str, Any]] = {"already_recorded": {"recorded_status": "denied"}, "conversation_conflict": {"revision": 7}}


@workflow.defn(name=SESSION_WORKFLOW, sandboxed=False)
class ScriptedSession:
    """`refuse <code>` is refused, `fail` fails unexpectedly, everything else is accepted. It rolls over every few inputs if told to."""

    @workflow.init
    def __init__(self, start: SessionStart) -> None:
        known, _, every = start.carried.partition("|")
        self._accepted: list[str] = known.split(",") if known else []
        self._roll_every = int(every or 0)
        self._since = 0
        self._refused = False

    @workflow.run
    async def run(self, start: SessionStart) -> None:
        await workflow.wait_condition(
            lambda: bool(self._roll_every and self._since >= self._roll_every) or (self._refused and not self._accepted)
        )
        await workflow.wait_condition(workflow.all_handlers_finished)
        if self._accepted:
            carried = f"{','.join(self._accepted)}|{self._roll_every}"
            workflow.continue_as_new(SessionStart(tenant=start.tenant, session_id=start.session_id, carried=carried))

    @workflow.update
    async def message(self, message: MessageInput) -> TurnReceipt:
        self._obey(message.content)
        if message.content.startswith("roll every "):
            self._roll_every = int(message.content.removeprefix("roll every "))
        if message.id not in self._accepted:
            self._accepted.append(message.id)
            self._since += 1
        return TurnReceipt(session_uid=UID, turn_id=message.turn_id or "", message_id="a1", user_message_id=message.id)

    @workflow.update
    async def continuation(self, continuation: ContinuationInput) -> TurnReceipt:
        self._obey(str(continuation.tool_result))
        return TurnReceipt(session_uid=UID, turn_id=continuation.turn_id or "", message_id="a1")

    @workflow.update
    async def cancel(self, cancel: CancelInput) -> CancelReceipt:
        return CancelReceipt(cancel_requested=True, turn_id=cancel.turn_id)

    @workflow.update
    async def repair(self, repair: RepairInput) -> RepairReceipt:
        return RepairReceipt(cleared_pending="c1", repaired_calls=("c1", "c2"))

    @workflow.update
    async def retry(self, retry: RetryInput) -> TurnReceipt:
        return TurnReceipt(session_uid=UID, turn_id=retry.turn_id, message_id="a1", attempt=2)

    @workflow.query
    def head(self) -> Head:
        return Head(session_uid=UID if self._accepted else "", owner="local")

    @workflow.query
    def accepted(self) -> list[str]:
        return self._accepted

    def _obey(self, script: str) -> None:
        if script.startswith("refuse "):
            self._refused = True
            code: Any = script.removeprefix("refuse ")
            raise Refusal(code, f"refused: {code}", **FACTS.get(code, {})).as_failure()
        if script == "fail":
            self._refused = True
            raise ApplicationError("KeyError in /secret/path.py", type="Internal", non_retryable=True)


@asynccontextmanager
async def scripted_worker(address: str, task_queue: str) -> AsyncIterator[Client]:
    """A worker of scripted sessions, and a client to look at them with."""
    client = await Client.connect(address, data_converter=data_converter(None))
    async with Worker(
        client, task_queue=task_queue, workflows=[ScriptedSession], workflow_runner=UnsandboxedWorkflowRunner(), build_id="scripted"
    ):
        yield client
