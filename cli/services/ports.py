"""TCP ports: free ones, the next free one, and sockets to listen on."""

import socket
from collections.abc import Callable
from contextlib import closing

from workflows.contracts.errors import SetupError

LOOPBACK = "127.0.0.1"
_TRIED = 100


def free_port() -> int:
    """A port of loopback that nobody listens on at this moment."""
    with closing(socket.socket()) as probe:
        probe.bind((LOOPBACK, 0))
        return int(probe.getsockname()[1])


def port_is_free(port: int) -> bool:
    """True if a server could listen on that port of loopback now."""
    with closing(socket.socket()) as probe:
        # As servers do: a port that only old connections still linger on is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
        return True


def next_free_port(port: int, *, besides: tuple[int, ...] = ()) -> int:
    """`port` or the first free one above it that isn't among `besides`. Raises SetupError if a hundred in a row are taken."""
    for candidate in range(port, min(port + _TRIED, 65536)):
        if candidate not in besides and port_is_free(candidate):
            return candidate
    raise SetupError(f"ports {port} to {port + _TRIED - 1} are all taken")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; 0 takes a free port. Raises OSError."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    found = socket.create_server((host, port), family=family, backlog=1024)
    # Connections inherit it. asyncio sets it only on sockets that name their protocol, and this one doesn't: without it an answer in
    # two writes would wait 40 ms for the reader's kernel.
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def listen_near(host: str, port: int, *, say: Callable[[str], None]) -> socket.socket:
    """A listening socket on `port` or the next free one, which is said. Raises SetupError."""
    for candidate in range(port, min(port + _TRIED, 65536)):
        try:
            found = listen(host, candidate)
        except OSError:
            continue
        if candidate != port:
            say(f"port {port} is taken, the API listens on {candidate}")
        return found
    raise SetupError(f"can't listen on {host}, ports {port} to {port + _TRIED - 1}")
