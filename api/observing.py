"""What a request is about, for its log lines and its span. Imports OpenTelemetry only where traces are on."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from workflows.contracts import telemetry

if TYPE_CHECKING:
    from opentelemetry.trace import Span
    from temporalio.client import Interceptor

QUIET = "/health,/metrics"
"""Paths (regular expressions) that are asked all the time and say nothing: no span for them."""

_WITH_QUERY = ("http.url", "http.target", "url.query")
"""Attributes that may hold a query string, in which callers send tickets and what they search for."""


class Observed:
    """ASGI middleware: a request begins without ids, and `named` is told once its answer begins, when they are known."""

    def __init__(self, app: ASGIApp, named: Callable[[Scope], None] | None) -> None:
        self._app = app
        self._named = named

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        telemetry.forget()
        named = self._named

        async def naming(message: Message) -> None:
            if named and message["type"] == "http.response.start":
                named(scope)
            await send(message)

        await self._app(scope, receive, naming if named else send)


def observe(app: FastAPI, *, traced: bool) -> None:
    """Adds what a request is about, and a span around it where traces are on."""
    app.add_middleware(Observed, named=_name_span if traced else None)
    if traced:
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware
        from opentelemetry.util.http import parse_excluded_urls

        app.add_middleware(
            OpenTelemetryMiddleware,
            excluded_urls=parse_excluded_urls(QUIET),
            default_span_details=lambda scope: (str(scope.get("method", "")), {}),
            server_request_hook=_without_query,
            exclude_spans=["receive", "send"],
        )


def client_interceptors(*, traced: bool) -> "Sequence[Interceptor]":
    """What carries the trace of a request into the session that it is for."""
    if not traced:
        return ()
    from temporalio.contrib.opentelemetry import OpenTelemetryInterceptor

    return (OpenTelemetryInterceptor(add_temporal_spans=True),)


def _without_query(span: "Span", scope: dict[str, Any]) -> None:
    path = scope["path"]
    for name in _WITH_QUERY:
        if name in getattr(span, "attributes", {}):
            span.set_attribute(name, "" if name == "url.query" else path)


def _name_span(scope: Scope) -> None:
    """By its route: names with ids in them would be as many as there are sessions."""
    from opentelemetry import trace

    span = trace.get_current_span()
    route = getattr(scope.get("route"), "path", None)
    if route is not None:
        span.update_name(f"{scope['method']} {route}")
        span.set_attribute("http.route", route)
    span.set_attributes({f"outlast.{name}": value for name, value in telemetry.identified().items()})


__all__ = ["Observed", "client_interceptors", "observe"]
