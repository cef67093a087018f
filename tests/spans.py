"""What tests see of traces: the spans that this process exports. A process has one tracer provider, so all its tests share it."""

from collections.abc import Iterator

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from temporalio.contrib.opentelemetry import ReplaySafeTracerProvider, create_tracer_provider

from cli.spans import Discreet

_EXPORTED = InMemorySpanExporter()


class Spans:
    """The spans that were exported since this was made."""

    def __init__(self) -> None:
        if not isinstance(trace.get_tracer_provider(), ReplaySafeTracerProvider):
            provider = create_tracer_provider()
            provider.add_span_processor(SimpleSpanProcessor(Discreet(_EXPORTED)))
            trace.set_tracer_provider(provider)
        _EXPORTED.clear()

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(_EXPORTED.get_finished_spans())

    def named(self, name: str, **ids: object) -> list[ReadableSpan]:
        """Those of a name whose ids are these."""
        return [
            span
            for span in self
            if span.name == name and ids.items() <= {k.removeprefix("outlast."): v for k, v in of(span).items()}.items()
        ]

    def path(self, span: ReadableSpan) -> list[str]:
        """The names from the trace's first span down to this one."""
        above = {each.context.span_id: each for each in self}
        names = [span.name]
        while span.parent is not None and span.parent.span_id in above:
            span = above[span.parent.span_id]
            names.insert(0, span.name)
        return names

    def text(self) -> str:
        """All that was exported."""
        return "\n".join(span.to_json() for span in self)


def of(span: ReadableSpan) -> dict[str, object]:
    """A span's attributes."""
    return dict(span.attributes or {})


def trace_of(span: ReadableSpan) -> int:
    """The id of a span's trace."""
    trace_id: int = span.context.trace_id
    return trace_id
