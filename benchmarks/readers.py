"""Many readers of event streams in one process: `python -m benchmarks.readers PORT PATHS RESULTS`; PATHS is a JSON list of what to read.

It says that it is ready once every stream has begun. At SIGTERM it writes what it saw: milliseconds from each stamp of a text delta to its
arrival, and how many readers were cut off. Plain sockets: a client library would take longer than what is measured.
"""

import asyncio
import json
import sys
from pathlib import Path

from benchmarks.process import until_stopped
from benchmarks.timed import STAMP, elapsed

AT_ONCE = 50
DELTA = b"event: text.delta\n"


class Reader(asyncio.Protocol):
    """One stream."""

    def __init__(self, path: str, seen: list[float]) -> None:
        self._request = f"GET {path} HTTP/1.0\r\nhost: 127.0.0.1\r\n\r\n".encode()
        self._seen = seen
        self._rest = b""
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Asks for the stream."""
        assert isinstance(transport, asyncio.Transport)
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Takes the time of every stamp in a whole delta."""
        *whole, self._rest = (self._rest + data).split(b"\n\n")
        for event in whole:
            if DELTA in event:
                self._seen.extend(elapsed(stamp) for stamp in STAMP.findall(event))
        if whole and not self.begun.done():
            self.begun.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        """Counts as cut off."""
        self.lost = True
        if not self.begun.done():
            self.begun.set_exception(exc or ConnectionError("the stream ended before it began"))


async def read(port: int, paths: list[str], results: Path) -> None:
    """Reads until the process is ended."""
    seen: list[float] = []
    readers: list[Reader] = []
    turnstile = asyncio.Semaphore(AT_ONCE)

    async def begin(path: str) -> None:
        async with turnstile:
            _, reader = await asyncio.get_running_loop().create_connection(lambda: Reader(path, seen), "127.0.0.1", port)
            readers.append(reader)
            await reader.begun

    await asyncio.gather(*[begin(path) for path in paths])
    seen.clear()
    await until_stopped()
    results.write_text(json.dumps({"milliseconds": seen, "lost": sum(reader.lost for reader in readers)}))


def main() -> None:
    """Runs the readers of a list of paths."""
    port, paths, results = int(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3])
    asyncio.run(read(port, json.loads(paths.read_text()), results))


if __name__ == "__main__":
    main()
