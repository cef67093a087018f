"""What activities and workflows are about, for their log lines and spans: read from what they are called with, so that none has to say it."""

from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Status, StatusCode
from temporalio import activity, workflow
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    ExecuteWorkflowInput,
    HandleSignalInput,
    HandleUpdateInput,
    Interceptor,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
)

from workflows.contracts import telemetry
from workflows.contracts.naming import session_of
from workflows.model.base import Record

_PARTS = {
    "session": ("tenant", "session_id", "session_uid"),
    "turn": ("turn_id", "attempt"),
    "call": ("call_id", "tool_name"),
}
"""Records that inputs name things by, and what of them are ids."""

_OWN = ("tenant", "session_id", "session_uid", "turn_id", "call_id", "step")


class Identifying(Interceptor):
    """Notes the ids of what runs for as long as its task lives: the SDK logs the failure of an activity after it has returned."""

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Puts itself before an activity."""
        return _Identified(next)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> "type[WorkflowInboundInterceptor]":
        """Puts itself before workflows and their handlers."""
        return _IdentifiedWorkflow


class _Identified(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        telemetry.identify(
            **ids_of(input.args[0] if input.args else None),
            workflow_id=info.workflow_id,
            run_id=info.workflow_run_id,
            activity=info.activity_type,
            activity_attempt=info.attempt,
        )
        return await self.next.execute_activity(input)


class _IdentifiedWorkflow(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        _identify_workflow()
        return await self.next.execute_workflow(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        _identify_workflow(update=input.update)
        return await self.next.handle_update_handler(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        _identify_workflow(signal=input.signal)
        await self.next.handle_signal(input)


def _identify_workflow(**more: str) -> None:
    info = workflow.info()
    tenant, session_id = session_of(info.workflow_id) or (None, None)
    telemetry.identify(tenant=tenant, session_id=session_id, workflow_id=info.workflow_id, run_id=info.run_id, **more)


def ids_of(asked: object) -> dict[str, object]:
    """The ids that an activity's input names."""
    if not isinstance(asked, Record):
        return {}
    ids = {name: getattr(asked, name, None) for name in _OWN}
    for part, names in _PARTS.items():
        if isinstance(record := getattr(asked, part, None), Record):
            ids |= {name: getattr(record, name) for name in names}
    return ids


def mark_failed(kind: str) -> None:
    """Says of the span that the running code is in, if it is in one, that it came to an error of that kind."""
    span = trace.get_current_span()
    span.set_attribute("error.type", kind)
    span.set_status(Status(StatusCode.ERROR, kind))


__all__ = ["Identifying", "ids_of", "mark_failed"]
