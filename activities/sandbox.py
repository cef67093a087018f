"""The SDK's sandbox, which does not enter itself to say whose payloads a session's are, into which nothing comes that is still encrypted, and
from which every workflow is taken out in the end.

The SDK asks a workflow instance for each payload, in each of three passes over every activation and completion. In the sandbox an
answer costs more than what it is about: it was a fifth of what a worker did.

A worker that has no key yet, while others encrypt already, has no codec that would stop at what it can't read. In a workflow the SDK drops a
signal that it can't decode, and a result that can't be decoded is a fault of the turn. Here the workflow task fails instead, and is tried again
until a worker gets it that has the key.

A workflow task that takes longer than two seconds, be it only for the machine's load, is given up by the SDK, which then takes the workflow
out of the cache, in another thread, while the first one may still be at it. Two threads in one instance break it: it is taken out never,
its session gets no more workflow tasks from this worker, and the worker does not end.
"""

import logging
import threading
from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import CommandType
from temporalio.converter import (
    SerializationContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
    WorkflowSerializationContext,
)
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner
from temporalio.workflow import Info

from activities.db.encryption import ENCODING, locked
from activities.runs import payloads_in

TRIES = 3
"""So often a workflow is asked to end its tasks before it is set aside."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sandbox(SandboxedWorkflowRunner):
    """Runs workflows as its base does. Payloads of a workflow's activities count as the workflow's own, of which codec and storage see
    no more than the workflow id (activities/db/encryption.py, activities/db/payloads.py).
    """

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        """An instance in a sandbox of its own."""
        return _Instance(super().create_instance(det), det.info)


class _Instance(WorkflowInstance):
    def __init__(self, inner: WorkflowInstance, info: Info) -> None:
        self._inner = inner
        self._info = info
        self._one_at_a_time = threading.Lock()
        self._serialized = WorkflowSerializationContext(namespace=info.namespace, workflow_id=info.workflow_id)
        self._stored = StorageDriverStoreContext(
            target=StorageDriverWorkflowInfo(id=info.workflow_id, run_id=info.run_id, type=info.workflow_type, namespace=info.namespace)
        )

    def activate(self, act: Any) -> Any:
        """One activation, in the sandbox, when the one before it is over. Raises PayloadUnreadable if no codec has decrypted it."""
        with self._one_at_a_time:
            if any(job.HasField("remove_from_cache") for job in act.jobs):
                return self._take_down(act)
            if ENCODING in act.SerializeToString() and (unreadable := locked(payloads_in(act))) is not None:
                raise unreadable
            return self._inner.activate(act)

    def _take_down(self, act: Any) -> Any:
        """Ends the workflow's tasks. The SDK would try for ever. What does not end is kept instead: were it collected as garbage, its
        tasks would go on in the middle of whatever runs then.
        """
        fault: Exception | None = None
        for _ in range(TRIES):
            try:
                return self._inner.activate(act)
            except Exception as error:
                fault = error
        _aside.append(self._inner)
        log.error("workflow %s, run %s does not end its tasks and is set aside: %s", self._info.workflow_id, self._info.run_id, fault)
        return None

    def get_serialization_context(self, command_info: Any) -> SerializationContext | None:
        """The workflow; what other commands are about, children say, the instance knows."""
        return self._serialized if _own(command_info) else self._inner.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> StorageDriverStoreContext:
        """The same for what is stored outside of the history."""
        return self._stored if _own(command_info) else self._inner.get_external_store_context(command_info)

    def get_info(self) -> Info:
        """What the instance was made for."""
        return self._info

    def get_thread_id(self) -> int | None:
        """Where it runs, if it does now: for the frames of one that hangs."""
        return self._inner.get_thread_id()


_aside: list[WorkflowInstance] = []


def _own(command_info: Any) -> bool:
    """Whether a payload is the workflow's own, or its activity's: no command, or one that schedules an activity."""
    return command_info is None or command_info.command_type == CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK


__all__ = ["Sandbox"]
