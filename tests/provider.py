"""A model provider that does what a script says, over real HTTP: chat completions and responses.

A script is a list of behaviours, one a request, plain JSON; the last one repeats. A behaviour with `when` answers every request
whose last message holds that text, before the list is looked at.

    {"stream": [{"thinking": "hm"}, {"text": "Hel"}, {"pause": 0.1}, {"text": "lo"},
                {"calls": [{"id": "c1", "name": "roll_dice", "arguments": {"sides": 6}}], "chunks": 3}],
     "end": "done", "usage": [12, 5], "finish": "stop"}
    {"status": 429, "headers": {"retry-after": "1"}, "body": {"error": {"message": "slow down"}}}

end: `done` as it should be; `cut` the body ends cleanly, too early; `fin` the connection closes in mid-body; `reset` it is reset;
`stall` nothing more comes until the client leaves; `garbage` a chunk that is no JSON; `error` an error object in the stream.
A pause may be an `asyncio.Event` where the test is in the same process: until it is set. `before` seconds pass before the headers.
Calls of one entry come in `chunks` pieces each, interleaved.

In another process: `python -m tests.provider --port N --script file`; then GET /_requests and POST /_script.
"""

import argparse
import asyncio
import json
import socket
import struct
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests import wires

Behaviour = dict[str, Any]


def says(*texts: str, thinking: str = "", calls: Iterable[dict[str, Any]] = (), **more: Any) -> Behaviour:
    """Streams thinking, then the texts, then the calls, in 2 interleaved pieces each."""
    steps: list[dict[str, Any]] = [{"thinking": thinking}] if thinking else []
    steps += [{"text": text} for text in texts]
    if called := list(calls):
        steps.append({"calls": called, "chunks": 2})
    return {"stream": steps, **more}


def fails(status: int, message: str = "no", code: str | None = None, **headers: str) -> Behaviour:
    """Answers an error; `retry_after="1"` becomes the header."""
    body = {"error": {"message": message, "type": "error", "code": code}}
    return {"status": status, "headers": {name.replace("_", "-"): value for name, value in headers.items()}, "body": body}


def call(name: str, arguments: Any, call_id: str = "c1") -> dict[str, Any]:
    """A tool call; arguments that are text are sent as they are."""
    return {"id": call_id, "name": name, "arguments": arguments}


@dataclass
class Received:
    """A request as it came, and what became of it: `finished` the script ran to its end, `left` the client went before."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    finished: bool = False
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def as_json(self) -> dict[str, Any]:
        return {"path": self.path, "body": self.body, "finished": self.finished, "left": self.left.is_set()}


class Provider:
    """`async with Provider(script) as provider:` listens on a free port of loopback; `provider.url` is the base URL for a client."""

    def __init__(self, script: Iterable[Behaviour] = (), port: int = 0) -> None:
        self.script: list[Behaviour] = list(script)
        self.requests: list[Received] = []
        self._port = port
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Provider":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """What goes into OPENAI_BASE_URL."""
        return f"http://127.0.0.1:{self._port}/v1"

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._answer(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)}
        body = json.loads(await reader.readexactly(int(headers.get("content-length", 0))) or b"{}")
        if path.startswith("/_"):
            await _send(writer, 200, {}, json.dumps(self._control(method, path, body)).encode())
            return
        received = Received(path, headers, body)
        self.requests.append(received)
        behaviour = self._next(body)
        watch = asyncio.create_task(_watch(reader, received))
        try:
            await asyncio.sleep(behaviour.get("before", 0))
            await self._behave(behaviour, received, writer)
        finally:
            watch.cancel()

    def _control(self, method: str, path: str, body: Any) -> Any:
        if path == "/_script" and method == "POST":
            self.script[:] = body["script"]
        return [request.as_json() for request in self.requests] if path == "/_requests" else {}

    def _next(self, body: dict[str, Any]) -> Behaviour:
        last = json.dumps((body.get("messages") or body.get("input") or [{}])[-1], ensure_ascii=False)
        for behaviour in self.script:
            if behaviour.get("when", None) is not None and behaviour["when"] in last:
                return behaviour
        queue = [behaviour for behaviour in self.script if "when" not in behaviour]
        if not queue:
            return says("ok")
        if len(queue) > 1:
            self.script.remove(queue[0])
        return queue[0]

    async def _behave(self, behaviour: Behaviour, received: Received, writer: asyncio.StreamWriter) -> None:
        if "status" in behaviour:
            await _send(writer, behaviour["status"], behaviour.get("headers", {}), json.dumps(behaviour.get("body", {})).encode())
            received.finished = True
            return
        wire = wires.Responses(behaviour) if received.path.endswith("/responses") else wires.Chat(behaviour)
        if not received.body.get("stream"):
            await _send(writer, 200, {}, json.dumps(wire.whole()).encode())
            received.finished = True
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n")
        async for event in _paced(wire.events()):
            _chunk(writer, event)
            await writer.drain()
        await _end(behaviour.get("end", "done"), wire, received, writer)


async def _paced(events: Iterator[str | float | asyncio.Event]) -> AsyncIterator[str]:
    for event in events:
        if isinstance(event, asyncio.Event):
            await event.wait()
            continue
        if isinstance(event, str):
            yield event
        await asyncio.sleep(0 if isinstance(event, str) else event)


async def _end(end: str, wire: wires.Wire, received: Received, writer: asyncio.StreamWriter) -> None:
    if end == "stall":
        await received.left.wait()
        return
    if end == "reset":
        # an abort alone would still flush; linger 0 makes the kernel send RST
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()
        return
    for event in {"done": wire.closing, "garbage": wires.garbage, "error": wires.error}.get(end, lambda: ())():
        _chunk(writer, event)
    if end != "fin":
        writer.write(b"0\r\n\r\n")
    await writer.drain()
    received.finished = True


async def _watch(reader: asyncio.StreamReader, received: Received) -> None:
    with suppress(ConnectionError):
        await reader.read(1)
    if not received.finished:
        received.left.set()


def _chunk(writer: asyncio.StreamWriter, event: str) -> None:
    data = event.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def _send(writer: asyncio.StreamWriter, status: int, headers: dict[str, str], body: bytes) -> None:
    lines = [f"HTTP/1.1 {status} -", "content-type: application/json", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await writer.drain()


async def _serve(port: int, script: list[Behaviour]) -> None:
    async with Provider(script, port) as provider:
        sys.stdout.write(f"{provider.url}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def main() -> None:
    """Serves until it is killed; prints its base URL first."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path)
    options = parser.parse_args()
    asyncio.run(_serve(options.port, json.loads(options.script.read_text()) if options.script else []))


if __name__ == "__main__":
    main()
