"""What is still being answered when the process ends."""

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import RETRY_AFTER_SECONDS, problem


class Ending:
    """ASGI middleware: a request that outlasts the server's patience with it at a stop is answered 503 `stopping`; an answer that has begun is cut."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def noting(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except asyncio.CancelledError:
            # Only the server cancels a request, once, and it waits for none then: there is nobody else to tell.
            if scope["type"] != "http" or not scope["app"].state.api.stopping.is_set():
                raise
            if not begun:
                said = "this API is being stopped; a write may have happened nevertheless: send it again with the same id"
                retry = {"Retry-After": str(RETRY_AFTER_SECONDS)}
                await problem(503, "stopping", said, headers=retry, maybe_happened=True)(scope, receive, send)
