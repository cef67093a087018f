"""The whole thing in one process: the real api, the real worker, real Temporal and Postgres, a model with a script."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
from fastapi import Request
from temporalio.client import Client, WorkflowHandle, WorkflowHistory

from activities.db.client import connect
from activities.db.locks import StepLocks
from activities.db.pool import Database
from activities.db.storage import Storage
from activities.kit import Kit
from activities.retention import retaining_events
from activities.search_attributes import registered
from api import sending
from api.access import identify
from api.app import create_app
from profiles.loading import load_profiles
from settings import ApiSettings, DatabaseSettings, Settings
from tests import services
from tests.chains import chain_of, inputs_taken
from tests.models import Script, ScriptedModels, says, script
from tests.services import PATIENCE_SECONDS
from worker import WORKFLOWS, build_worker, measured
from workflows.contracts.inputs import SessionStart
from workflows.contracts.naming import SESSION_WORKFLOW, session_workflow_id
from workflows.model.session import Caller
from workflows.model.state import Head, LastTurn

ASSISTANTS = str(Path(__file__).parent / "assistants.py")
SCRIPTED: dict[str, Any] = {
    "api": ApiSettings(wait_seconds=PATIENCE_SECONDS),
    "model": "scripted",
    "profile": "assistant",
    "profiles": [ASSISTANTS],
}
Answer = dict[str, Any]

SOON_SECONDS = sending.PATIENCE_SECONDS
"""How long an api offers an input before it is 503. A test of just that puts it back: three test processes may keep a worker busy for longer."""
sending.PATIENCE_SECONDS = PATIENCE_SECONDS


def callers_of(tenant: str) -> Callable[[Request], Caller]:
    """The test's headers say who calls; without them it is `local`, an admin of the system's own tenant."""

    def identified(request: Request) -> Caller:
        principal = request.headers.get("x-test-principal")
        if principal is None:
            return Caller(tenant=tenant, principal="local", roles=("admin",))
        roles = tuple(filter(None, request.headers.get("x-test-roles", "").split(",")))
        return Caller(tenant=request.headers.get("x-test-tenant", tenant), principal=principal, roles=roles)

    return identified


@dataclass
class System:
    """What a test drives and looks at."""

    settings: Settings
    address: str
    tenant: str
    apis: list[httpx.AsyncClient]
    temporal: Client
    script: Script
    kit: Kit
    conn: asyncpg.Connection

    @property
    def http(self) -> httpx.AsyncClient:
        return self.apis[0]

    async def post(self, path: str, body: Any = None, *, api: int = 0, **options: Any) -> httpx.Response:
        return await self.apis[api].post(f"/api{path}", json={} if body is None else body, **options)

    async def get(self, path: str, *, api: int = 0, **options: Any) -> Any:
        answer = await self.apis[api].get(f"/api{path}", **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def chat(self, session: str, content: str = "hello", **fields: Any) -> Answer:
        """Sends a message and waits for its turn."""
        answer = await self.post("/chat", {"session_id": session, "content": content, **fields})
        assert answer.status_code == 200, answer.text
        body: Answer = answer.json()
        return body

    async def submit(self, session: str, content: str = "hello", **fields: Any) -> Answer:
        """Sends a message and does not wait."""
        answer = await self.post("/chat?wait=false", {"session_id": session, "content": content, **fields})
        assert answer.status_code == 202, answer.text
        body: Answer = answer.json()
        return body

    async def resume(self, session: str, call_id: str, result: Any = "ok", **fields: Any) -> httpx.Response:
        """Sends a host's result."""
        return await self.post("/chat", {"session_id": session, "tool_call_id": call_id, "tool_result": result, **fields})

    async def messages(self, session: str) -> list[Answer]:
        return (await self.get(f"/sessions/{session}/messages"))["messages"]  # type: ignore[no-any-return]

    async def events(self, session: str) -> list[Answer]:
        """The durable events of a session as rows hold them, internal ones left out."""
        rows = await self.conn.fetch(
            "select e.seq, e.turn_id, e.type, e.data from events e join sessions s using (session_uid) "
            "where s.session_id = $1 and e.type <> 'text' order by e.seq",
            session,
        )
        return [{"seq": row["seq"], "turn_id": row["turn_id"], "type": row["type"], **json.loads(row["data"])} for row in rows]

    async def until(self, fits: Callable[[], Any], seconds: float = PATIENCE_SECONDS) -> Any:
        """Waits until `fits`, which may be a coroutine function, answers something."""
        async with asyncio.timeout(seconds):
            while True:
                found = fits()
                if asyncio.iscoroutine(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(0.02)

    async def idle(self, session: str, turns: int, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Waits until a session has had so many turns, and its workflow knows."""

        async def done() -> bool:
            head: Any = await self.workflow(session).query("head")
            return bool(head.get("turn_number") == turns) and (await self.get(f"/sessions/{session}"))["live_turn"] is None

        await self.until(done, seconds)

    async def heard(self, turn: Answer) -> LastTurn:
        """Waits until the workflow has heard of an answered turn's end, which rows show a moment before; how it ended there."""

        async def last() -> LastTurn | None:
            head: Head = await self.workflow(turn["session_id"]).query("head", result_type=Head)
            known = head.last_turn
            return known if known and (known.turn.turn_id, known.turn.attempt) == (turn["turn_id"], turn["attempt"]) else None

        found: LastTurn = await self.until(last)
        return found

    async def streaming(self) -> None:
        """Waits until a turn has streamed some text."""
        await self.until(lambda: self.conn.fetchval("select true from live_deltas"))

    async def recorded(self, event: str, count: int = 1) -> None:
        """Waits until so many events of a type are in the rows."""
        await self.until(lambda: self.conn.fetchval("select count(*) >= $2 from events where type = $1", event, count))

    async def running(self, session: str, content: str, **fields: Any) -> "asyncio.Task[Answer]":
        """A message whose turn has streamed some text and goes on."""
        sent = asyncio.create_task(self.chat(session, content, **fields))
        await self.streaming()
        return sent

    def workflow(self, session: str) -> "WorkflowHandle[Any, Any]":
        return self.temporal.get_workflow_handle(session_workflow_id(self.tenant, session))

    async def begun_by_signal(self, session: str, message: dict[str, Any]) -> "WorkflowHandle[Any, Any]":
        """A session whose first message is a signal."""
        return await self.temporal.start_workflow(
            SESSION_WORKFLOW,
            SessionStart(tenant=self.tenant, session_id=session),
            id=self.workflow(session).id,
            task_queue=self.settings.task_queue,
            start_signal="message",
            start_signal_args=[{"tenant": self.tenant, **message}],
        )

    async def accepted(self, session: str, inputs: int) -> None:
        """Waits until a session's newest run has taken so many inputs."""

        async def taken() -> bool:
            return await inputs_taken(self.workflow(session)) >= inputs

        await self.until(taken)

    async def listed(self, *workflow_ids: str) -> None:
        """Waits until Temporal lists these workflows: its lists follow what happens at a small distance."""

        async def shown() -> bool:
            query = " OR ".join(f"WorkflowId = '{workflow_id}'" for workflow_id in workflow_ids)
            return {run.id async for run in self.temporal.list_workflows(query)} == set(workflow_ids)

        await self.until(shown)

    async def histories(self, session: str) -> list[WorkflowHistory]:
        """Every run of a session, oldest first."""
        return await chain_of(self.temporal, session_workflow_id(self.tenant, session))


@asynccontextmanager
async def running_system(
    database_url: str,
    address: str,
    scripted: Script | None = None,
    *,
    apis: int = 1,
    like: System | None = None,
    interceptors: Sequence[Any] = (),
    workflows: Sequence[type] = WORKFLOWS,
    **changes: Any,
) -> AsyncIterator[System]:
    """Starts everything on a database, a task queue and a tenant of its own, or again where `like` ran.

    `database_url` is the schema owner's, whom the test's own connection is; api and worker are the runtime role. `changes` are settings, `interceptors` and `workflows` the worker's.
    """
    name = like.tenant if like else f"system-{uuid4().hex[:12]}"
    scripted = scripted or script(says("hello"))
    settings = Settings(
        database=DatabaseSettings(url=services.as_runtime(database_url), timeout_seconds=PATIENCE_SECONDS / 2),
        task_queue=name,
        **{**SCRIPTED, **changes},
    )
    async with AsyncExitStack() as stack:
        kit = await _kit(stack, settings, scripted)
        temporal = await connect(settings, kit.storage, address, for_api=False, runtime=measured(settings.metrics.worker_address))
        kit.indexed = await registered(temporal)
        intercepted = Client(
            temporal.service_client, namespace=temporal.namespace, data_converter=temporal.data_converter, interceptors=interceptors
        )
        await stack.enter_async_context(build_worker(intercepted, kit, workflows))
        await stack.enter_async_context(retaining_events(settings, kit.db, kit.locks))
        clients = [await _api(stack, settings, address, name) for _ in range(apis)]
        conn = await asyncpg.connect(database_url)
        stack.push_async_callback(conn.close)
        yield System(settings, address, name, clients, temporal, scripted, kit, conn)


async def _kit(stack: AsyncExitStack, settings: Settings, scripted: Script) -> Kit:
    database = await Database.open(settings.database)
    stack.push_async_callback(database.close)
    storage = Storage(settings, database)
    stack.push_async_callback(storage.close)
    locks = await StepLocks.open(settings.database)
    stack.push_async_callback(locks.close)
    models = ScriptedModels(settings, {"scripted": scripted})
    return Kit(settings=settings, db=database, storage=storage, locks=locks, models=models, profiles=load_profiles(settings))


async def _api(stack: AsyncExitStack, settings: Settings, address: str, tenant: str) -> httpx.AsyncClient:
    app = create_app(settings, temporal_address=address)
    if settings.access.mode == "local":
        app.dependency_overrides[identify] = callers_of(tenant)
    await stack.enter_async_context(app.router.lifespan_context(app))
    transport = httpx.ASGITransport(app)
    return await stack.enter_async_context(httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=60.0))
