"""Api and workers as processes of their own, on servers that a test may stop, and a provider that stays."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from cli.services.postgres import PostgresServer
from cli.services.temporal import TemporalServer
from tests.chaos.journal import LET_GO
from tests.chaos.processes import SIGNING, Program, Programs
from tests.ports import free_port
from tests.provider import Provider
from tests.services import TEMPLATE, as_runtime

READY = "worker ready"


@dataclass
class Stand:
    """One api, any number of workers."""

    programs: Programs
    postgres: PostgresServer
    temporal: TemporalServer
    provider: Provider
    env: dict[str, str]
    url: str
    http: httpx.AsyncClient
    api: Program

    async def worker(self, **settings: str) -> Program:
        """Starts a worker and waits until it takes work."""
        worker = self.programs.start("worker", env=self.env | settings)
        await worker.says(READY)
        return worker

    @property
    def effects(self) -> Counter[str]:
        """How often each call had its effect."""
        path = Path(self.env["JOURNAL"])
        return Counter(path.read_text().split()) if path.exists() else Counter()

    def let_go(self) -> None:
        """Lets the tools end that wait for it."""
        Path(self.env["JOURNAL"] + LET_GO).touch()

    async def chat(self, content: str = "hello", session: str = "s1", **body: Any) -> dict[str, Any]:
        return await self.post("/api/chat", 200, session_id=session, content=content, **body)

    async def submit(self, content: str = "hello", session: str = "s1", **body: Any) -> dict[str, Any]:
        return await self.post("/api/chat?wait=false", 202, session_id=session, content=content, **body)

    async def submit_result(self, call_id: str, result: Any, session: str = "s1") -> dict[str, Any]:
        return await self.post("/api/chat?wait=false", 202, session_id=session, tool_call_id=call_id, tool_result=result)

    async def post(self, path: str, status: int, **body: Any) -> dict[str, Any]:
        answer = await self.http.post(path, json=body)
        assert answer.status_code == status, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def messages(self, session: str = "s1") -> list[dict[str, Any]]:
        answer = await self.http.get(f"/api/sessions/{session}/messages")
        assert answer.status_code == 200, answer.text
        found: list[dict[str, Any]] = answer.json()["messages"]
        return found

    async def row(self, query: str, *args: Any) -> Any:
        """One value from the database."""
        conn = await asyncpg.connect(self.postgres.url(TEMPLATE))
        try:
            return await conn.fetchval(query, *args)
        finally:
            await conn.close()

    async def kinds(self) -> list[str]:
        """The types of all durable events, in order."""
        found = await self.row("select json_agg(type order by seq) from events where type <> 'text'")
        return list(json.loads(found))

    async def ended(self, turn_id: str, seconds: float = 60.0) -> str:
        """Waits for a turn's end; how it ended."""
        query = "select state from turns where turn_id = $1 and state <> 'running'"
        state: str = await until(lambda: self.row(query, turn_id), seconds)
        return state


async def until(fits: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Waits until `fits`, which may be a coroutine function, answers something."""
    async with asyncio.timeout(seconds):
        while True:
            found = fits()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.05)


@asynccontextmanager
async def standing(
    programs: Programs, postgres: PostgresServer, temporal: TemporalServer, *behaviours: dict[str, Any]
) -> AsyncIterator[Stand]:
    """An api that is ready; no worker yet. The provider does as the behaviours say."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with Provider(behaviours) as provider, httpx.AsyncClient(base_url=url, timeout=60) as http:
        env = {
            "OUTLAST_DATABASE__URL": as_runtime(postgres.url(TEMPLATE)),
            "TEMPORAL_ADDRESS": temporal.address,
            "OUTLAST_API__PORT": str(port),
            **SIGNING,
            "OUTLAST_MODEL": "openai-chat:scripted",
            "OPENAI_BASE_URL": provider.url,
            "OPENAI_API_KEY": "none",
            "OUTLAST_PROFILES": str(Path(__file__).with_name("journal.py")),
            "OUTLAST_PROFILE": "journal",
            "JOURNAL": str(programs.folder / "journal"),
        }
        api = programs.start("api", env=env)
        await api.says("api ready")
        yield Stand(programs, postgres, temporal, provider, env, url, http, api)
