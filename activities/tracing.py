"""OpenTelemetry in a worker: spans of updates, jobs and activities, all under the request that caused them. Imported only where it is on.

The SDK's interceptor carries the trace from the caller into the workflow and on to activities. Spans within workflows are made here: the
SDK's span of a whole run would last for months, and one that is cut off when its workflow leaves the cache would be told twice.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context, attach, detach
from opentelemetry.trace import Status, StatusCode, use_span
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue
from temporalio import workflow
from temporalio.contrib.opentelemetry import OpenTelemetryInterceptor
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

from activities.observing import mark_failed
from workflows.contracts import telemetry
from workflows.contracts.telemetry import Trace

ATTRIBUTE = "outlast."
"""Ids are attributes of this namespace."""

_PROPAGATOR = TraceContextTextMapPropagator()
_SCOPE = "outlast"


class SessionTracing:
    """How a workflow's work hangs in traces."""

    def here(self) -> Trace:
        """The place of the running code."""
        carrier: Trace = {}
        _PROPAGATOR.inject(carrier)
        return carrier

    def work(self, name: str, trace: Trace | None) -> AbstractContextManager[None]:
        """A span under `trace`."""
        return _span(name, _PROPAGATOR.extract(trace, Context()) if trace else Context())

    def apart(self) -> AbstractContextManager[object]:
        """No span, and none above."""
        return use_span(trace.INVALID_SPAN)

    def failed(self, kind: str) -> None:
        """Marks the span."""
        mark_failed(kind)


class Tracing(OpenTelemetryInterceptor):
    """The SDK's, with its spans around activities and client calls and without those within workflows."""

    def __init__(self) -> None:
        super().__init__(add_temporal_spans=True)

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> type[Any]:
        """Only carries traces along."""
        return OpenTelemetryInterceptor(add_temporal_spans=False).workflow_interceptor_class(input)


class Spans(Interceptor):
    """Our own spans within workflows, and ids on those around activities. Goes behind `Tracing` and what notes ids."""

    def workflow_interceptor_class(self, input: WorkflowInterceptorClassInput) -> "type[WorkflowInboundInterceptor]":
        """Spans of updates and signals, and whatever workflows trace themselves."""
        return _WorkflowSpans

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        """Names what the activity's span is about."""
        return _ActivityIds(next)


class _ActivityIds(ActivityInboundInterceptor):
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        trace.get_current_span().set_attributes(attributes())
        return await self.next.execute_activity(input)


class _WorkflowSpans(WorkflowInboundInterceptor):
    async def execute_workflow(self, input: ExecuteWorkflowInput) -> Any:
        telemetry.bind(SessionTracing())
        return await self.next.execute_workflow(input)

    async def handle_update_handler(self, input: HandleUpdateInput) -> Any:
        telemetry.bind(SessionTracing())
        with _span(f"HandleUpdate:{input.update}"):
            return await self.next.handle_update_handler(input)

    async def handle_signal(self, input: HandleSignalInput) -> None:
        telemetry.bind(SessionTracing())
        with _span(f"HandleSignal:{input.signal}"):
            await self.next.handle_signal(input)


@contextmanager
def _span(name: str, context: Context | None = None) -> Iterator[None]:
    """A span within a workflow.

    It ends where the block ends, by itself or by an exception. A workflow that leaves a worker's cache is unwound from inside with
    something that is no Exception; its span goes on where the workflow does, and there it ends, under the same id.
    """
    info = workflow.info()
    ids = {**attributes(), "temporalWorkflowID": info.workflow_id, "temporalRunID": info.run_id}
    span = trace.get_tracer(_SCOPE).start_span(name, context, attributes=ids)
    token = attach(trace.set_span_in_context(span))
    try:
        yield
    except GeneratorExit:
        raise  # the workflow was dropped, and this may be another task's context
    except Exception as error:
        detach(token)
        span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        span.end()
        raise
    except BaseException:
        detach(token)
        raise
    detach(token)
    span.end()


def attributes() -> Mapping[str, AttributeValue]:
    """The ids of what runs here, as attributes."""
    return {ATTRIBUTE + name: value for name, value in telemetry.identified().items() if name not in ("workflow_id", "run_id")}


def worker_interceptors() -> Sequence[Interceptor]:
    """What traces a worker."""
    return (Tracing(), Spans())


__all__ = ["SessionTracing", "attributes", "worker_interceptors"]
