"""Serves the app with uvicorn inside a process that handles signals itself."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from api.connections import Connection

DRAIN_SECONDS = 5
"""How long requests that are being answered may take once the server was asked to stop."""

KEEP_ALIVE_SECONDS = 75
"""How long an idle connection stays open: longer than clients' and load balancers' pools keep theirs (a minute at most, as they come). Whoever
closes first must be the one who sends, else a request may meet a connection that is just being closed, and is lost."""


class ApiServer(uvicorn.Server):
    """uvicorn that leaves signals to its owner, and whose streams and waiting requests end when it is asked to stop."""

    def __init__(self, app: FastAPI, *, host: str = "127.0.0.1", port: int = 0) -> None:
        config = uvicorn.Config(
            app,
            http=Connection,
            host=host,
            port=port,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="on",
            timeout_graceful_shutdown=DRAIN_SECONDS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
        )
        super().__init__(config)
        self._app = app

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Takes no signal: several servers share one process."""
        yield

    async def run(self, sockets: Sequence[socket.socket] | None = None) -> None:  # type: ignore[override]
        """Serves until `stop`, on sockets that are bound already or on its own host and port."""
        await self.serve(None if sockets is None else list(sockets))

    def stop(self) -> None:
        """Ends streams and waiting requests, then the server."""
        if self.started:
            self._app.state.api.stop()
        self.should_exit = True
