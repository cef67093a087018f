"""OpenTelemetry's SDK in a process of ours, set up by its own `OTEL_…` variables. Imported only where traces are on."""

import logging
import os
from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from math import inf
from typing import Any
from urllib.parse import urlsplit

import opentelemetry.instrumentation.asgi  # noqa: F401  what an api needs is missed at the start, not at its first request
from opentelemetry import trace
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Status
from temporalio.contrib.opentelemetry import ReplaySafeTracerProvider, create_tracer_provider

from workflows.contracts.errors import SetupError

_PROTOCOLS = {"grpc": "otlp_proto_grpc", "http/protobuf": "otlp_proto_http"}
_SAMPLERS = ("always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off", "parentbased_traceidratio")
QUIET_SECONDS = 300.0
_NAMELESS = "unknown_service"
_KIND = "exception.type"


def provider(service: str, *, include_content: bool) -> ReplaySafeTracerProvider:
    """Makes spans of `service`, unless `OTEL_SERVICE_NAME` names another, and sends them where the environment says. Raises SetupError."""
    _check_sampler()
    try:
        return _provider(service, include_content=include_content)
    except ValueError as error:
        names = ", ".join(sorted(name for name in os.environ if name.startswith("OTEL_")))
        raise SetupError(f"OpenTelemetry refuses its variables ({names}): {' '.join(str(error).split())}") from error


def _provider(service: str, *, include_content: bool) -> ReplaySafeTracerProvider:
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, _NAMELESS)).startswith(_NAMELESS):
        resource = resource.merge(Resource({SERVICE_NAME: service}))
    made = create_tracer_provider(resource=resource)
    for exporter in _exporters():
        made.add_span_processor(BatchSpanProcessor(exporter if include_content else Discreet(exporter)))
    return made


def _check_sampler() -> None:
    """OpenTelemetry would sample everything under a name that it doesn't know."""
    sampler = os.environ.get("OTEL_TRACES_SAMPLER", "").strip().lower()
    if sampler and sampler not in _SAMPLERS and not entry_points(group="opentelemetry_traces_sampler", name=sampler):
        raise SetupError(f"OTEL_TRACES_SAMPLER={sampler}: no such sampler; there are {', '.join(_SAMPLERS)}")


def _check_endpoint() -> None:
    """OTLP over HTTP is sent to URLs."""
    for variable in ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"):
        endpoint = os.environ.get(variable, "")
        url = urlsplit(endpoint)
        if endpoint and not (url.scheme in ("http", "https") and url.hostname):
            raise SetupError(f"{variable}={endpoint} is no URL such as http://localhost:4318")


def spare(records: logging.Handler) -> None:
    """Of OpenTelemetry's lines, which it repeats for as long as a receiver is away, one of each kind in `QUIET_SECONDS` is let through."""
    last: dict[tuple[str, int], float] = {}

    def due(record: logging.LogRecord) -> bool:
        kind = (record.name, record.levelno)
        if not record.name.startswith("opentelemetry.") or record.created - last.get(kind, -inf) >= QUIET_SECONDS:
            last[kind] = record.created
            return True
        return False

    records.addFilter(due)


def ids() -> Mapping[str, str]:
    """The span that the running code is in."""
    span = trace.get_current_span().get_span_context()
    return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"} if span.is_valid else {}


def _exporters() -> list[SpanExporter]:
    """As `OTEL_TRACES_EXPORTER` names them; those of OTLP configure themselves from `OTEL_EXPORTER_OTLP_…`."""
    names = [name.strip() for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
    return [_exporter(name) for name in names if name not in ("", "none")]


def _exporter(name: str) -> Any:
    if name == "otlp":
        general = os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", general)
        entry, said = _PROTOCOLS.get(protocol, protocol), f"OTEL_EXPORTER_OTLP_PROTOCOL={protocol}"
    else:
        entry, said = name, f"OTEL_TRACES_EXPORTER={name}"
    if entry == _PROTOCOLS["http/protobuf"]:
        _check_endpoint()
    found = entry_points(group="opentelemetry_traces_exporter", name=entry)
    if not found:
        package = "opentelemetry-exporter-" + entry.replace("_", "-")
        raise SetupError(f"{said}: no such exporter is installed here (is it {package}?)")
    try:
        return next(iter(found)).load()()
    except (ImportError, ValueError, RuntimeError) as error:
        raise SetupError(f"{said}: {' '.join(str(error).split())}") from error


class Discreet(SpanExporter):
    """Leaves out the words of exceptions: they may quote a tool's arguments or a provider's answer."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Sends the spans on."""
        return self._exporter.export([_without_words(span) for span in spans])

    def shutdown(self) -> None:
        """Ends the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """True if everything was sent."""
        return self._exporter.force_flush(timeout_millis)


def _without_words(span: ReadableSpan) -> ReadableSpan:
    if not span.events and not span.status.description:
        return span
    description = (span.status.description or "").partition(":")[0] or None
    return ReadableSpan(
        name=span.name,
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=span.attributes,
        events=[
            Event(event.name, {k: v for k, v in (event.attributes or {}).items() if k == _KIND}, event.timestamp) for event in span.events
        ],
        links=span.links,
        kind=span.kind,
        status=Status(span.status.status_code, description),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


__all__ = ["Discreet", "ids", "provider", "spare"]
