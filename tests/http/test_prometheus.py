"""What operators scrape: an api's figures and a worker's."""

import asyncio
import re
from concurrent.futures import BrokenExecutor
from typing import Any
from uuid import uuid4

import httpx
import pytest
from temporalio.client import Client

from activities.db.client import connect
from activities.db.pool import Database
from activities.db.storage import Storage
from settings import DatabaseSettings, MetricsSettings, Settings
from tests import services
from tests.models import calls, raises, says, script
from tests.ports import free_port
from tests.replay.telling import Between
from tests.services import PATIENCE_SECONDS
from tests.system import running_system
from worker import measured, open_kit, work
from workflows.contracts.errors import ServiceUnavailable
from workflows.contracts.inputs import SessionStart
from workflows.contracts.naming import SESSION_WORKFLOW, session_workflow_id


def figure(page: str, name: str, **labels: str) -> float:
    """The sum of a metric's series that have these labels."""
    found = re.findall(rf"^{name}(?:{{(.*)}})? ([0-9.e+-]+)$", page, re.MULTILINE)
    return sum(float(value) for said, value in found if all(f'{key}="{word}"' in said for key, word in labels.items()))


async def test_an_api_counts_requests_by_route_and_never_by_id(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("hello"))) as system:
        await system.chat("walrus")
        await system.http.get("/api/sessions/petrel")
        await system.http.get("/nowhere/gannet")
        answer = await system.http.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain")
        page = answer.text
        assert figure(page, "outlast_http_requests_total", route="/api/chat", status="200") == 1
        assert figure(page, "outlast_http_requests_total", route="/api/sessions/{session_id}", status="404") == 1
        assert figure(page, "outlast_http_requests_total", route="unknown", status="404") == 1
        assert figure(page, "outlast_http_seconds_count", route="/api/chat") == 1
        assert figure(page, "outlast_listening") == 1
        assert not [word for word in ("walrus", "petrel", "gannet") if word in page]


async def test_a_worker_counts_steps_tokens_and_tools_beside_what_the_sdk_counts(database_url: str, temporal_address: str) -> None:
    port = free_port()
    scripted = script(calls(("c1", "add", {"a": 1, "b": 2})), says("three"), raises(ValueError("bad")))
    metrics = MetricsSettings(worker_address=f"127.0.0.1:{port}")
    async with running_system(database_url, temporal_address, scripted, metrics=metrics) as system:
        await system.chat("s1")
        await system.chat("s1", "again")
        async with httpx.AsyncClient(timeout=30) as http:

            async def counted() -> str | None:
                """The page, once it has what is counted behind the last commit of a step."""
                text = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
                return text if figure(text, "outlast_step_seconds_count") == 3 else None

            page: str = await system.until(counted)
    assert figure(page, "outlast_steps", state="calls") == 1
    assert figure(page, "outlast_steps", state="answered", model="scripted") == 1
    assert figure(page, "outlast_steps", state="failed", error="internal") == 1
    assert figure(page, "outlast_tool_calls", tool="add", outcome="success") == 1
    assert figure(page, "outlast_tokens", direction="output") > 0
    assert figure(page, "temporal_activity_execution_latency_count") > 0


async def test_a_worker_that_can_not_go_on_ends_and_the_next_one_of_its_process_serves_its_figures_where_it_did(
    database_url: str, temporal_address: str
) -> None:
    address, queue, between = f"127.0.0.1:{free_port()}", f"system-{uuid4().hex[:12]}", Between()
    database = await Database.open(DatabaseSettings(url=services.as_runtime(database_url)))
    settings = Settings(database=database.settings, task_queue=queue, profile="demo", model="demo", worker_shutdown_seconds=0.1)
    storage, stop = Storage(settings, database), asyncio.Event()

    async def connected() -> Client:
        return await connect(settings, storage, temporal_address, for_api=False, runtime=measured(address), interceptors=[between])

    async def broken(*_: object) -> Any:
        raise BrokenExecutor("no thread is left")

    async with open_kit(settings, database, storage) as kit:
        between.after, first = broken, await connected()
        said = {"tenant": queue, "principal": "ann", "roles": [], "id": "m1", "content": "hello"}
        start = SessionStart(tenant=queue, session_id="s1")
        session = session_workflow_id(queue, "s1")
        await first.start_workflow(SESSION_WORKFLOW, start, id=session, task_queue=queue, start_signal="message", start_signal_args=[said])
        with pytest.raises(ServiceUnavailable, match="the worker can't go on: no thread is left"):
            await asyncio.wait_for(work(first, kit, stop), PATIENCE_SECONDS)
        between.after = Between().after
        second = asyncio.create_task(work(await connected(), kit, stop))
        async with httpx.AsyncClient(timeout=30) as http, asyncio.timeout(PATIENCE_SECONDS):
            while figure((await http.get(f"http://{address}/metrics")).text, "outlast_steps", state="answered") != 1:
                await asyncio.sleep(0.05)
        stop.set()
        await second
    await database.close()
