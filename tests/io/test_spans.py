"""How a process sends its spans: as OpenTelemetry's own variables say, to a real receiver, with clear words for what is missing."""

import gzip
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from cli import spans
from workflows.contracts.errors import SetupError

ROOT = Path(__file__).parents[2]


@contextmanager
def receiver() -> Iterator[tuple[str, list[tuple[str, ExportTraceServiceRequest]]]]:
    """An OTLP/HTTP receiver: its URL, and what came in by path."""
    came: list[tuple[str, ExportTraceServiceRequest]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            came.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Says nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", came
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("include_content", [False, True])
def test_spans_go_where_the_standard_variables_say(monkeypatch: pytest.MonkeyPatch, include_content: bool) -> None:
    with receiver() as (url, came):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
        provider = spans.provider("outlast-api", include_content=include_content)
        with pytest.raises(ValueError, match="walrus"), provider.get_tracer("test").start_as_current_span("work"):
            assert spans.ids()["trace_id"]
            raise ValueError("walrus")
        assert provider.force_flush()
        provider.shutdown()
    ((path, request),) = came
    assert path == "/v1/traces"
    resource = {item.key: item.value.string_value for item in request.resource_spans[0].resource.attributes}
    assert (resource["service.name"], resource["deployment.environment"]) == ("outlast-api", "test")
    (span,) = request.resource_spans[0].scope_spans[0].spans
    assert (span.name, span.status.message.split(":")[0]) == ("work", "ValueError")
    assert ("walrus" in str(request)) is include_content
    assert spans.ids() == {}


def test_a_service_name_of_ones_own_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "mine")
    tracer = spans.provider("outlast-api", include_content=False).get_tracer("test")
    assert tracer.start_span("work").resource.attributes["service.name"] == "mine"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        (
            "OTEL_EXPORTER_OTLP_PROTOCOL",
            "grpc",
            "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: no such exporter is installed here (is it opentelemetry-exporter-otlp-proto-grpc?)",
        ),
        ("OTEL_TRACES_EXPORTER", "zipkin", "OTEL_TRACES_EXPORTER=zipkin: no such exporter"),
        ("OTEL_TRACES_SAMPLER", "foo", "OTEL_TRACES_SAMPLER=foo: no such sampler; there are always_on, "),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "nonsense", "OTEL_EXPORTER_OTLP_ENDPOINT=nonsense is no URL such as http://localhost:4318"),
        ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "localhost:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=localhost:4318 is no URL"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "-4", "OpenTelemetry refuses its variables (OTEL_BSP_MAX_QUEUE_SIZE): max_queue_size must be"),
        ("OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT", "x", "OpenTelemetry refuses its variables (OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT): "),
    ],
)
def test_a_variable_that_says_nothing_of_use_is_one_line(monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SetupError) as refused:
        spans.provider("outlast-api", include_content=False)
    assert words in str(refused.value)


def test_a_receiver_that_is_away_is_complained_of_once() -> None:
    handler = logging.Handler()
    spans.spare(handler)
    names = ("opentelemetry.exporter.otlp", "opentelemetry.exporter.otlp", "opentelemetry.sdk", "outlast", "outlast")
    records = [logging.LogRecord(name, logging.WARNING, "", 0, "away", None, None) for name in names]
    assert [bool(handler.filter(record)) for record in records] == [True, False, True, True, True]


def test_where_traces_are_off_nothing_is_imported_and_where_a_package_is_missing_one_line_says_so() -> None:
    program = (
        "import sys, worker, api.app; assert not [name for name in sys.modules if name.startswith('opentelemetry.sdk')]; "
        "sys.modules['opentelemetry.sdk'] = None; sys.argv = ['outlast', 'api']; from cli.main import main; main()"
    )
    environment = {"PATH": os.environ["PATH"], "OUTLAST_TRACING__ENABLED": "true"}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (
        1,
        "outlast: OUTLAST_TRACING__ENABLED: opentelemetry.sdk.resources is not installed; pip install 'outlast[otel]'\n",
    )
