"""One turn of each subject, timed from the request to its end as the one who asked sees it."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import aiohttp
from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from temporalio.client import Client, WorkflowHandle

from benchmarks.floor import FLOOR_QUEUE, FloorWorkflow
from benchmarks.peer import PEER_QUEUE, PeerWorkflow
from benchmarks.text import words
from workflows.contracts.naming import session_workflow_id

MESSAGE_CHARACTERS = 400
PATIENCE_SECONDS = 360.0


class Floor:
    """The trivial workflow. A fresh one takes over long before Temporal's limit of updates in one run."""

    UPDATES_PER_RUN = 500

    def __init__(self, client: Client) -> None:
        self._client = client
        self._handle: WorkflowHandle[FloorWorkflow, None] | None = None
        self._updates = 0

    async def turn(self) -> float:
        """Milliseconds of one update."""
        if self._handle is None or self._updates == self.UPDATES_PER_RUN:
            self._handle = await self._client.start_workflow(FloorWorkflow.run, id=f"floor/{uuid4()}", task_queue=FLOOR_QUEUE)
            self._updates = 0
            await self._handle.execute_update(FloorWorkflow.turn)
        self._updates += 1
        began = time.perf_counter()
        await self._handle.execute_update(FloorWorkflow.turn)
        return (time.perf_counter() - began) * 1000

    async def fresh(self) -> None:
        """The next turn is another workflow's."""
        self._handle = None


class Peer:
    """A session of the peer. `broken` says why it takes no more turns."""

    def __init__(self, client: Client, handle: WorkflowHandle[PeerWorkflow, None], first_run: str) -> None:
        self._client = client
        self.handle = handle
        self.first_run = first_run
        self.turns = 0
        self.broken: str | None = None

    @classmethod
    async def begin(cls, address: str) -> "Peer":
        """Starts a session."""
        client = await Client.connect(address, plugins=[PydanticAIPlugin()])
        handle = await client.start_workflow(PeerWorkflow.run, id=f"peer/{uuid4()}", task_queue=PEER_QUEUE)
        assert handle.first_execution_run_id
        return cls(client, handle, handle.first_execution_run_id)

    async def turn(self) -> float | None:
        """Milliseconds of one turn; None once the session takes no more."""
        if self.broken:
            return None
        began = time.perf_counter()
        try:
            await self.handle.execute_update(PeerWorkflow.turn, words(MESSAGE_CHARACTERS, f"{self.turns} "))
        except Exception as error:
            self.broken = f"{type(error).__name__}: {error.__cause__ or error}"
            return None
        self.turns += 1
        return (time.perf_counter() - began) * 1000


def http_client(*, at_once: int = 100) -> aiohttp.ClientSession:
    """What sends turns, so many at once: a client that takes as little of the machine as Temporal's own does for the floor."""
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=at_once), timeout=aiohttp.ClientTimeout(total=PATIENCE_SECONDS))


@dataclass
class Session:
    """A session of ours, over HTTP."""

    url: str
    http: aiohttp.ClientSession
    id: str = field(default_factory=lambda: f"bench-{uuid4()}")
    turns: int = 0
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What each of its messages says besides."""

    @property
    def workflow_id(self) -> str:
        """Its workflow's."""
        return session_workflow_id("default", self.id)

    async def streamed_turn(self, content: str | None = None) -> float:
        """Milliseconds from the request to `turn.completed` on its event stream. Raises RuntimeError for a turn that failed."""
        body = self._body(content)
        began = time.perf_counter()
        async with self.http.post(f"{self.url}/api/chat/stream", json=body) as response:
            async for line in response.content:
                if line == b"event: turn.error\n":
                    raise RuntimeError(f"a turn failed: {await response.content.readline()!r}")
                if line == b"event: turn.completed\n":
                    return (time.perf_counter() - began) * 1000
        raise RuntimeError(f"the stream of a turn ended without turn.completed, status {response.status}")

    async def turn(self, content: str | None = None) -> float:
        """Milliseconds from the request to the whole answer. Raises RuntimeError for a turn that failed."""
        body = self._body(content)
        began = time.perf_counter()
        async with self.http.post(f"{self.url}/api/chat", json=body) as response:
            text = await response.text()
        took = (time.perf_counter() - began) * 1000
        answer = json.loads(text)
        if response.status != 200 or answer["error"] or not answer["content"]:
            raise RuntimeError(f"a turn failed: {response.status} {text}")
        return took

    def _body(self, content: str | None) -> dict[str, Any]:
        self.turns += 1
        return {**self.fields, "session_id": self.id, "content": content or words(MESSAGE_CHARACTERS, f"{self.turns} ")}
