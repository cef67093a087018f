"""What operators scrape: an api's figures and a worker's."""

import re

import httpx

from cli.services.ports import free_port
from settings import MetricsSettings
from tests.models import calls, raises, says, script
from tests.system import running_system


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
        async with httpx.AsyncClient() as http:
            page = (await http.get(f"http://127.0.0.1:{port}/metrics")).text
    assert figure(page, "outlast_steps", state="calls") == 1
    assert figure(page, "outlast_steps", state="answered", model="scripted") == 1
    assert figure(page, "outlast_steps", state="failed", error="internal") == 1
    assert figure(page, "outlast_tool_calls", tool="add", outcome="success") == 1
    assert figure(page, "outlast_tokens", direction="output") > 0
    assert figure(page, "outlast_step_seconds_count") == 3
    assert figure(page, "temporal_activity_execution_latency_count") > 0
