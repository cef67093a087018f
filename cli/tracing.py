"""Traces of a process: on or off. Nothing of OpenTelemetry's SDK is imported where they are off."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from cli.logs import log_to_stderr
from settings import Settings
from workflows.contracts.errors import SetupError

FLUSH_MS = 3_000
"""How long the end of a process waits for the last spans to be taken."""


@contextmanager
def traced(settings: Settings, service: str) -> Iterator[None]:
    """Traces what runs within as `service`, where the settings say so, and lets log lines name the trace. Once a process.

    Raises SetupError if a package is missing or an exporter can't be made.
    """
    if not settings.tracing.enabled:
        yield
        return
    try:
        from cli import spans
    except ImportError as error:
        raise SetupError(f"OUTLAST_TRACING__ENABLED: {error.name} is not installed; pip install 'outlast[otel]'") from error
    from opentelemetry import trace

    provider = spans.provider(service, include_content=settings.tracing.include_content)
    trace.set_tracer_provider(provider)
    spans.spare(log_to_stderr(settings.log, spans.ids))
    try:
        yield
    finally:
        with suppress(Exception):
            provider.force_flush(FLUSH_MS)


__all__ = ["traced"]
