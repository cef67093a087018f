"""Connections to clients: one that takes nothing is not waited for."""

import asyncio
import logging
import socket
from contextlib import suppress

from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

UNSENT_BYTES = 64 * 1024
"""What the kernel holds of an answer that isn't on its way yet, where it can be told; as much again waits in this process at most, and one chunk."""

log = logging.getLogger(__name__)


class Connection(H11Protocol):
    """A connection that is cut when its client hasn't made room for more for `OUTLAST_API__SEND_TIMEOUT_SECONDS`.

    Whoever writes to it waits meanwhile, and for nobody else; what was being sent is given up, and a stream can be resumed.
    """

    _cut: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Bounds what the kernel takes ahead of the client: else a client that reads nothing could leave megabytes with it."""
        super().connection_made(transport)
        client = transport.get_extra_info("socket")
        if client is not None and hasattr(socket, "TCP_NOTSENT_LOWAT"):
            with suppress(OSError):  # not a TCP socket
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)

    def pause_writing(self) -> None:
        """The client takes less than it is sent."""
        super().pause_writing()
        app = self.config.app
        if self._cut is None and isinstance(app, FastAPI):
            self._cut = self.loop.call_later(app.state.settings.api.send_timeout_seconds, self._give_up)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self._wait_no_more()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is left to be cut."""
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait_no_more(self) -> None:
        if self._cut is not None:
            self._cut.cancel()
            self._cut = None

    def _give_up(self) -> None:
        log.info("cut the connection of a client that reads nothing")
        self.transport.abort()
