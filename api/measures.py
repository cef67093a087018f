"""What an api process measures of itself, for Prometheus: requests by route and status, streams, connections. No ids, no content."""

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.deps import Api

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNKNOWN = "unknown"
"""The route of a request that no route takes: paths of callers' own making must not become time series."""


class Measures:
    """The figures of one app. Each has a registry of its own: several apps may share a process."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        route = ("method", "route", "status")
        self.requests = Counter("outlast_http_requests", "Requests answered", route, registry=self._registry)
        self.seconds = Histogram("outlast_http_seconds", "Time to the head of the answer", ("method", "route"), registry=self._registry)
        self._streams = Gauge("outlast_stream_readers", "Readers of event streams", registry=self._registry)
        self._listening = Gauge("outlast_listening", "1 while Postgres' notifications arrive", registry=self._registry)
        self._connections = Gauge("outlast_database_connections", "Connections of the pool", ("state",), registry=self._registry)

    def page(self, api: Api) -> bytes:
        """All figures as Prometheus reads them."""
        self._streams.set(api.tails.attached)
        self._listening.set(api.feed.health == "listening")
        pool = api.database.pool
        idle = pool.get_idle_size()
        self._connections.labels("idle").set(idle)
        self._connections.labels("busy").set(pool.get_size() - idle)
        return generate_latest(self._registry)


class Measured:
    """ASGI middleware that counts requests, and times them up to the head of their answer: streams go on for long after it."""

    def __init__(self, app: ASGIApp, measures: Measures) -> None:
        self._app = app
        self._measures = measures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path", UNKNOWN)
                self._measures.requests.labels(scope["method"], route, message["status"]).inc()
                self._measures.seconds.labels(scope["method"], route).observe(time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, counting)


__all__ = ["CONTENT_TYPE", "Measured", "Measures"]
