"""What holds for every request, whatever its route: foreign pages change nothing, and answers say if nothing here is durable."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.access import origin_allowed
from api.errors import problem
from settings import Settings


class Gate:
    """ASGI middleware: 403 for a state-changing request of a foreign origin (R50), and `X-Outlast-Durable: false` where it applies."""

    def __init__(self, app: ASGIApp, settings: Settings, durable: bool) -> None:
        self._app = app
        self._settings = settings
        self._durable = durable

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if not self._durable:
            send = _saying_so(send)
        headers = Headers(scope=scope)
        if origin_allowed(scope["method"], headers.get("origin"), headers.get("host", ""), self._settings):
            await self._app(scope, receive, send)
            return
        refusal = problem(403, "forbidden_origin", "pages of this origin may not change anything here (OUTLAST_ACCESS__ORIGINS)")
        await refusal(scope, receive, send)


def _saying_so(send: Send) -> Send:
    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["X-Outlast-Durable"] = "false"
        await send(message)

    return marked
