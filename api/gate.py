"""What holds for every request, whatever its route: foreign pages change nothing, and each answer carries the headers that browsers obey."""

from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access import origin_allowed
from api.errors import problem
from api.identity import PRINCIPAL, TENANT
from settings import AccessSettings, Settings

PAGES = ("/docs",)
"""What is made to be looked at: it may be kept, and may load what it needs from here. Answers are data and may neither."""

_ALWAYS = {"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "X-Frame-Options": "DENY"}
_PAGE = {"Content-Security-Policy": "frame-ancestors 'none'"}
_DATA = {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'", "Cache-Control": "no-store"}


class Gate:
    """ASGI middleware: 403 for a state-changing request of a foreign origin (R50), security headers, and `X-Outlast-Durable: false` where it applies."""

    def __init__(self, app: ASGIApp, settings: Settings, durable: bool) -> None:
        self._app = app
        self._settings = settings
        always = _ALWAYS if durable else {**_ALWAYS, "X-Outlast-Durable": "false"}
        self._of_pages = {**always, **_PAGE}
        self._of_data = {**always, **_DATA}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        send = _with_headers(send, self._of_pages if scope["path"].startswith(PAGES) else self._of_data)
        headers = Headers(scope=scope)
        if origin_allowed(scope["method"], headers.get("origin"), headers.get("host", ""), self._settings):
            await self._app(scope, receive, send)
            return
        refusal = problem(403, "forbidden_origin", "pages of this origin may not change anything here (OUTLAST_ACCESS__ORIGINS)")
        await refusal(scope, receive, send)


def cors(settings: AccessSettings) -> dict[str, Any]:
    """What pages of the named origins may send and read. Cookies are let through where a proxy may tell users apart by them."""
    return {
        "allow_origins": settings.origins,
        "allow_methods": ["GET", "POST", "PATCH", "DELETE"],
        "allow_headers": ["Authorization", "Content-Type", "Idempotency-Key", "Last-Event-ID", "Prefer", "X-Namespace", TENANT, PRINCIPAL],
        "expose_headers": ["X-Session-ID", "Retry-After", "WWW-Authenticate", "X-Outlast-Durable"],
        "allow_credentials": settings.mode == "header",
    }


def _with_headers(send: Send, more: dict[str, str]) -> Send:
    """Adds headers that an answer doesn't have of itself."""

    async def adding(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in more.items():
                headers.setdefault(name, value)
        await send(message)

    return adding
