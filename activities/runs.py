"""Runs of a workflow as Temporal holds them: which there are, what they refer to, and how they go."""

import json
import re
from collections.abc import AsyncIterator, Collection, Iterator
from datetime import datetime

from google.protobuf.message import Message
from temporalio.api.common.v1 import Payload, WorkflowExecution
from temporalio.api.history.v1 import History
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from activities.db.payloads import is_reference

NAMES = re.compile(rb"(?=([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{64}))")
"""Whatever looks like a uuid or a SHA-256, wherever it begins: what is not a payload's name does no harm."""


class Runs:
    """The runs of one workflow id. Raises RPCError where Temporal does not answer."""

    def __init__(self, client: Client, workflow_id: str) -> None:
        self._client = client
        self._id = workflow_id

    async def is_there(self, run_id: str) -> bool:
        """Whether Temporal has a run, open or closed."""
        return await self._describe(run_id) is not None

    async def is_open(self, run_id: str) -> bool:
        """Whether a run goes on."""
        return await self._open(run_id) is not None

    async def goes_on(self, session_uid: str | None = None) -> bool:
        """Whether the newest run is open; with a uid: and is that session's, not another one's that has its id now."""
        newest = await self._open(None)
        return newest is not None and (session_uid is None or (await newest.memo()).get("session_uid") == session_uid)

    async def chain(self, run_id: str) -> AsyncIterator[str]:
        """A run and those that it continues, newest first, as far back as Temporal has them."""
        before: str | None = run_id
        while before and (events := (await self.history(before, events=1)).events):
            yield before
            before = events[0].workflow_execution_started_event_attributes.continued_execution_run_id

    async def closed(self, session_uid: str, before: datetime) -> list[str]:
        """Closed runs that began before a time and belong to a session, or to none: then their first input was refused."""
        query = f"WorkflowId = '{self._id}' and CloseTime is not null and StartTime <= '{before.isoformat()}'"
        runs = [run async for run in self._client.list_workflows(query)]
        return [run.run_id for run in runs if (await run.memo()).get("session_uid", session_uid) == session_uid]

    async def all(self) -> dict[str, bool]:
        """Every run that there is, and whether it is open. The newest one and what it continues are asked for: a list may lag behind."""
        run_ids = [run.run_id async for run in self._client.list_workflows(f"WorkflowId = '{self._id}'")]
        if (newest := await self._describe(None)) is not None:
            run_ids += [run_id async for run_id in self.chain(newest.run_id)]
        found = [await self._describe(run_id) for run_id in dict.fromkeys(run_ids)]
        return {run.run_id: run.status == WorkflowExecutionStatus.RUNNING for run in found if run is not None}

    async def history(self, run_id: str, *, events: int | None = None) -> History:
        """The first so many events of a run, by default all; none of a run that is gone. What they refer to is not loaded."""
        history = History()
        try:
            async for event in self._client.get_workflow_handle(self._id, run_id=run_id).fetch_history_events(page_size=events):
                history.events.append(event)
                if len(history.events) == events:
                    break
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise
            return History()
        return history

    async def referred_to(self, run_ids: Collection[str], names: Collection[str]) -> set[str]:
        """Those of these payloads in external storage that the histories of runs refer to: by their names, which are never encrypted."""
        wanted = {name.encode(): name for name in names}
        found: set[str] = set()
        for run_id in run_ids if wanted else ():
            named = set(NAMES.findall((await self.history(run_id)).SerializeToString()))
            found.update(name for written, name in wanted.items() if written in named)
        return found

    async def refer_to_driver(self, run_ids: Collection[str], driver: str) -> bool:
        """Whether the histories of runs refer to payloads that a driver of external storage keeps."""
        for run_id in run_ids:
            history = await self.history(run_id)
            if driver.encode() in history.SerializeToString() and driver in map(_driver_of, payloads_in(history)):
                return True
        return False

    async def delete(self, run_id: str) -> None:
        """Asks Temporal to remove a run, which it does in the background."""
        execution = WorkflowExecution(workflow_id=self._id, run_id=run_id)
        request = DeleteWorkflowExecutionRequest(namespace=self._client.namespace, workflow_execution=execution)
        try:
            await self._client.workflow_service.delete_workflow_execution(request)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise

    async def _open(self, run_id: str | None) -> WorkflowExecutionDescription | None:
        found = await self._describe(run_id)
        return found if found is not None and found.status == WorkflowExecutionStatus.RUNNING else None

    async def _describe(self, run_id: str | None) -> WorkflowExecutionDescription | None:
        try:
            return await self._client.get_workflow_handle(self._id, run_id=run_id).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return None
            raise


def _driver_of(payload: Payload) -> str | None:
    """The driver that keeps what a payload stands for; None for one that stands for itself."""
    return json.loads(payload.data).get("driverName") if is_reference(payload) else None


def payloads_in(message: Message) -> Iterator[Payload]:
    """All payloads in a message, however deep."""
    if isinstance(message, Payload):
        yield message
        return
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            parts = [part for part in value.values() if isinstance(part, Message)]
        else:
            parts = [value] if isinstance(value, Message) else list(value)
        for part in parts:
            yield from payloads_in(part)
