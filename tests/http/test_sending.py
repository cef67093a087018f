"""How the api addresses session workflows, against a real Temporal and a scripted session without rows."""

import asyncio
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx
import pytest
from temporalio.client import Client

from api import sending
from api.app import create_app
from api.temporal import Pulse
from cli.services.temporal import TemporalServer
from settings import Settings
from tests.http.conftest import NOWHERE, running
from tests.http.scripted import FACTS, scripted_worker
from tests.models import says, script
from tests.system import SOON_SECONDS, running_system
from workflows.contracts.naming import session_workflow_id

ASYNC = {"prefer": "respond-async"}
IN_TIME = 25.0
"""Seconds: three times the patience of the api, which a slow machine may stretch."""
REFUSALS = [
    ("not_found", 404),
    ("already_recorded", 409),
    ("not_pending", 409),
    ("call_mismatch", 409),
    ("duplicate_id", 409),
    ("unknown_parent", 409),
    ("binding_conflict", 409),
    ("busy", 409),
    ("not_retryable", 409),
    ("conversation_conflict", 409),
    ("unknown_profile", 422),
    ("bad_request", 422),
    ("usage_limit", 429),
]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The api is as patient as it is where no test runs."""
    monkeypatch.setattr(sending, "PATIENCE_SECONDS", SOON_SECONDS)


@pytest.fixture
def queued(settings: Settings) -> Settings:
    """Settings with a task queue of the test's own."""
    return settings.model_copy(update={"task_queue": f"scripted-{uuid4()}"})


@pytest.fixture
async def temporal_client(queued: Settings, temporal_address: str) -> AsyncIterator[Client]:
    async with scripted_worker(temporal_address, queued.task_queue) as client:
        yield client


@pytest.fixture
async def api(queued: Settings, temporal_address: str, temporal_client: Client) -> AsyncIterator[httpx.AsyncClient]:
    async with running(create_app(queued, temporal_address=temporal_address)) as client:
        yield client


def session_id() -> str:
    return f"s-{uuid4()}"


async def say(api: httpx.AsyncClient, session: str, content: str, **body: object) -> httpx.Response:
    return await api.post("/api/chat", json={"session_id": session, "content": content, **body}, headers=ASYNC)


@pytest.mark.parametrize(("code", "status"), REFUSALS)
async def test_each_refusal_has_its_status_and_facts(api: httpx.AsyncClient, code: str, status: int) -> None:
    session = session_id()
    for path in ("/api/chat", "/api/chat/stream"):
        answer = await api.post(path, json={"session_id": session, "content": f"refuse {code}"})
        assert answer.status_code == status
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["code"] == code and problem["status"] == status
        assert problem["type"] and problem["title"] and problem["detail"] == f"refused: {code}"
        assert problem.items() >= FACTS.get(code, {}).items()


async def test_an_unexpected_failure_shows_no_traceback(api: httpx.AsyncClient, queued: Settings) -> None:
    with pytest.raises(RuntimeError):
        await say(api, session_id(), "fail")
    transport = httpx.ASGITransport(api._transport.app, raise_app_exceptions=False)  # type: ignore[attr-defined]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        answer = await say(client, session_id(), "fail")
    assert (answer.status_code, answer.json()["code"]) == (500, "internal")
    assert answer.headers["content-type"] == "application/problem+json"
    assert "secret" not in answer.text and "Traceback" not in answer.text


async def test_respond_async_answers_at_once_with_where_to_follow(api: httpx.AsyncClient) -> None:
    body = {"content": "hi", "id": "m1", "turn_id": "t1"}
    for send in (
        api.post("/api/chat", json=body, headers=ASYNC),
        api.post("/api/chat?wait=false", json=body),
        api.post("/api/chat", json=body, headers={"prefer": "wait=0"}),
    ):
        answer = await send
        issued = answer.headers["x-session-id"]
        assert answer.status_code == 202
        assert answer.json() == {
            "session_id": issued,
            "user_message_id": "m1",
            "message_id": "a1",
            "turn_id": "t1",
            "events": f"/api/sessions/{issued}/events?after=before:t1",
        }
        repeat = await api.post(f"/api/sessions/{issued}/turns/t1/retry", headers=ASYNC)
        assert repeat.json()["events"] == f"/api/sessions/{issued}/events?after=before:t1@2"


async def test_r140_nobody_began_the_session(api: httpx.AsyncClient) -> None:
    session = session_id()
    absent = (await api.get(f"/api/sessions/{session}")).content
    for path, body in (
        ("/api/chat", {"session_id": session, "tool_call_id": "c1", "tool_result": None}),
        (f"/api/sessions/{session}/cancel", None),
        (f"/api/sessions/{session}/repair", None),
        (f"/api/sessions/{session}/turns/t1/retry", None),
    ):
        answer = await api.post(path, json=body) if body else await api.post(path)
        assert (answer.status_code, answer.content) == (404, absent), path
    assert (await api.get(f"/api/sessions/{session}/events?after=before:t1")).status_code == 404


async def test_a_session_without_rows_yet_takes_writes(api: httpx.AsyncClient) -> None:
    session = session_id()
    assert (await say(api, session, "hi")).status_code == 202
    assert (await api.post(f"/api/sessions/{session}/cancel", json={"turn_id": "t9"})).json() == {"cancel_requested": True, "turn_id": "t9"}
    repaired = {"session_id": session, "cleared_pending": "c1", "repaired_calls": ["c1", "c2"]}
    assert (await api.post(f"/api/sessions/{session}/repair")).json() == repaired
    result = {"session_id": session, "tool_call_id": "c1", "tool_result": "ok"}
    assert (await api.post("/api/chat", json=result, headers=ASYNC)).status_code == 202


async def test_l23_a_message_sent_twice_at_once_is_taken_once(api: httpx.AsyncClient, temporal_client: Client) -> None:
    session = session_id()
    answers = await asyncio.gather(*(say(api, session, "hi", id="m1", turn_id="t1") for _ in range(5)))
    assert {answer.status_code for answer in answers} == {202}
    assert await accepted(temporal_client, session) == ["m1"]


async def test_l04_a_burst_on_one_session_is_taken_whole(api: httpx.AsyncClient, temporal_client: Client) -> None:
    """Temporal takes ten updates at a time; here come six times as many."""
    session = session_id()
    answers = await asyncio.gather(*(say(api, session, "hi", id=f"m{number}") for number in range(60)))
    assert {answer.status_code for answer in answers} == {202}
    assert sorted(await accepted(temporal_client, session)) == sorted(f"m{number}" for number in range(60))


async def test_l06_nothing_is_lost_or_doubled_at_rollover(api: httpx.AsyncClient, temporal_client: Client) -> None:
    session = session_id()
    await say(api, session, "roll every 3", id="m-first")
    answers = await asyncio.gather(*(say(api, session, "hi", id=f"m{number}") for number in range(40)))
    assert {answer.status_code for answer in answers} == {202}
    taken = await accepted(temporal_client, session)
    assert sorted(taken) == sorted(["m-first", *(f"m{number}" for number in range(40))])


async def accepted(client: Client, session: str) -> list[str]:
    taken: list[str] = await client.get_workflow_handle(session_workflow_id("default", session)).query("accepted")
    return taken


async def test_temporal_down_refuses_writes_in_time_and_serves_reads(settings: Settings) -> None:
    async with running(create_app(settings, temporal_address=NOWHERE)) as client:
        begun = time.monotonic()
        answer = await say(client, "s1", "hi")
        assert time.monotonic() - begun < IN_TIME
        assert (answer.status_code, answer.json()["code"]) == (503, "temporal_unavailable")
        assert int(answer.headers["retry-after"]) > 0
        assert "may happen nevertheless" in answer.json()["detail"]
        assert (await client.get("/api/sessions")).status_code == 200
        ready = await client.get("/health/ready")
        assert ready.status_code == 503 and "temporal" in ready.json()["detail"]
        health = await client.get("/health")
        assert (health.status_code, health.json()["status"]) == (200, "degraded")


@pytest.mark.usefixtures("soon")
async def test_temporal_hangs_and_comes_back(queued: Settings, own_temporal: TemporalServer) -> None:
    async with (
        scripted_worker(own_temporal.address, queued.task_queue),
        running(create_app(queued, temporal_address=own_temporal.address)) as client,
    ):
        assert (await say(client, "s1", "hi")).status_code == 202
        assert (await client.get("/health/ready")).status_code == 200
        own_temporal.signal(signal.SIGSTOP)
        begun = time.monotonic()
        ready, answer = await asyncio.gather(client.get("/health/ready"), say(client, "s1", "hi", id="m2"))
        assert time.monotonic() - begun < IN_TIME
        assert (answer.status_code, answer.json()["code"]) == (503, "temporal_unavailable")
        assert ready.status_code == 503
        own_temporal.signal(signal.SIGCONT)
        assert (await say(client, "s1", "hi", id="m2")).status_code == 202


@pytest.mark.usefixtures("soon")
async def test_without_a_worker_a_write_is_refused_in_time(settings: Settings, temporal_address: str) -> None:
    idle = settings.model_copy(update={"task_queue": f"nobody-{uuid4()}"})
    async with running(create_app(idle, temporal_address=temporal_address)) as client:
        begun = time.monotonic()
        answer = await say(client, session_id(), "hi")
        assert time.monotonic() - begun < IN_TIME
        assert (answer.status_code, answer.json()["code"]) == (503, "temporal_unavailable")
        ready = await client.get("/health/ready")
        assert ready.status_code == 503 and "worker" in ready.json()["detail"]


async def test_l27_who_waits_looks_whether_temporal_answers_and_a_worker_is_there(queued: Settings, temporal_client: Client) -> None:
    pulse = Pulse(temporal_client, queued.task_queue, 20.0)
    while not await pulse.beats():  # a worker that has just been made may not have asked yet
        await asyncio.sleep(0.05)
    assert not await Pulse(temporal_client, f"nobody-{uuid4()}", 20.0).beats()


async def test_l27_many_who_wait_look_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pulse = Pulse(await Client.connect("{}:{}".format(*silent.getsockname()), lazy=True), "any", 3.0)
        for _ in range(2):
            waiting = [asyncio.create_task(pulse.beats()) for _ in range(50)]
            await asyncio.sleep(0.05)
            assert [task.get_name() for task in asyncio.all_tasks()].count("pulse") == 1
            waiting.pop().cancel()
            assert await asyncio.gather(*waiting) == [False] * 49


async def test_l27_a_burst_of_new_sessions_is_served_by_a_worker_that_has_much_to_do(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("hello"))) as system:
        count = 300 if os.environ.get("TEST_LONG") else 30
        answers = await asyncio.gather(*(system.post("/chat", {"session_id": f"s{n}", "content": "hi"}) for n in range(count)))
        assert {answer.status_code for answer in answers} == {200}
