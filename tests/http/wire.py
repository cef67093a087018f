"""A client at the level of the socket, for what a client library would hide: one that stops reading, and many at once."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx

from tests.http.sse import Frame


@asynccontextmanager
async def asked(url: str, path: str, *, receive_buffer: int = 0) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection on which `path` was asked for, as HTTP/1.0: the body comes as it is and ends with the connection."""
    place = urlsplit(url)
    client = socket.socket()
    client.setblocking(False)
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(client, (place.hostname, place.port))
    reader, writer = await asyncio.open_connection(sock=client, limit=receive_buffer or 2**16)
    try:
        writer.write(f"GET {path} HTTP/1.0\r\nhost: {place.netloc}\r\n\r\n".encode())
        assert b" 200 " in await reader.readline()
        while (await reader.readline()).strip():
            pass
        yield reader, writer
    finally:
        writer.transport.abort()


def frames_of(body: bytes) -> Iterator[Frame]:
    """The events of a body that may end in the middle of one, which then doesn't count."""
    for block in body.decode(errors="ignore").split("\n\n")[:-1]:
        fields = dict(line.split(": ", 1) for line in block.split("\n") if not line.startswith(":"))
        if fields:
            yield Frame(fields["id"], fields["event"], httpx.Response(200, text=fields["data"]).json())
