"""The SDK's sandbox, which does not enter itself to say whose payloads a session's are.

The SDK asks a workflow instance for each payload, in each of three passes over every activation and completion. In the sandbox an
answer costs more than what it is about: it was a fifth of what a worker did.
"""

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
        self._serialized = WorkflowSerializationContext(namespace=info.namespace, workflow_id=info.workflow_id)
        self._stored = StorageDriverStoreContext(
            target=StorageDriverWorkflowInfo(id=info.workflow_id, run_id=info.run_id, type=info.workflow_type, namespace=info.namespace)
        )

    def activate(self, act: Any) -> Any:
        """One activation, in the sandbox."""
        return self._inner.activate(act)

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


def _own(command_info: Any) -> bool:
    """Whether a payload is the workflow's own, or its activity's: no command, or one that schedules an activity."""
    return command_info is None or command_info.command_type == CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK


__all__ = ["Sandbox"]
