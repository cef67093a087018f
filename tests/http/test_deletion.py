"""Deletion and expiry over HTTP, with everything real but the model."""

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from api.access import identify
from api.app import create_app
from api.sending import Workflows
from settings import Settings
from tests.http.conftest import NOWHERE, caller_of_headers, running, served
from tests.http.seeding import Seed
from tests.http.sse import opened
from tests.models import calls, hangs, says, script
from tests.services import PATIENCE_SECONDS
from tests.system import Answer, System, callers_of, running_system

ALICE = {"x-test-principal": "alice"}
BOB = {"x-test-principal": "bob"}
Begin = Callable[[str], Seed]


async def delete(system: System, session: str, **options: Any) -> httpx.Response:
    return await system.http.delete(f"/api/sessions/{session}", **options)


async def status(system: System, path: str, **options: Any) -> int:
    return (await system.http.get(f"/api{path}", **options)).status_code


async def test_s20_a_deleted_session_is_unreadable_at_once_and_the_receipt_says_what_went(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.post("/chat", {"session_id": "s1", "content": "the word is hippopotamus"}, headers=ALICE)
        answer = await delete(system, "s1", headers=ALICE)
        assert answer.status_code == 202, answer.text
        begun = answer.json()
        assert begun == {"erasure_id": begun["erasure_id"], "status": "running"}
        for path in ("", "/messages", "/tree", "/events", "/changes"):
            assert await status(system, f"/sessions/s1{path}", headers=ALICE) == 404
        assert (await system.get("/sessions"))["sessions"] == []
        for table in ("sessions", "messages", "model_messages", "segments", "turns", "steps", "events", "calls"):
            assert await system.conn.fetchval(f"select count(*) from {table}") == 0
        receipt = f"/erasures/{begun['erasure_id']}"
        assert [await status(system, receipt, headers=who) for who in (ALICE, BOB)] == [200, 404]
        foreign = await system.http.get(f"/api{receipt}", headers=BOB)
        absent = await system.http.get("/api/erasures/00000000-0000-4000-8000-000000000000", headers=BOB)
        assert absent.status_code == 404 and foreign.content == absent.content
        assert await status(system, receipt, headers=ALICE | {"x-test-tenant": "other"}) == 404
        done = await system.until(lambda: _done(system, receipt), 200)
        assert (done["session_ids"], done["verified"], done["workflow_runs"]) == (["s1"], True, 1)
        assert (done["rows"]["sessions"], done["rows"]["messages"], done["rows"]["turns"]) == (1, 2, 1)
        assert datetime.fromisoformat(done["at"]) <= datetime.now(UTC)


async def _done(system: System, receipt: str) -> Answer | None:
    found: Answer = await system.get(receipt)
    assert found["status"] in ("running", "done") and found["verified"] == (found["status"] == "done")
    await asyncio.sleep(0.2)
    return found if found["status"] == "done" else None


async def test_r38_delete_of_an_absent_a_foreign_and_a_deleted_session_is_404(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.post("/chat", {"session_id": "s1", "content": "hi"}, headers=ALICE)
        foreign, absent = await delete(system, "s1", headers=BOB), await delete(system, "absent", headers=BOB)
        assert foreign.status_code == 404 and foreign.content == absent.content
        both = await asyncio.gather(*(delete(system, "s1", headers=ALICE) for _ in range(2)))
        assert sorted(answer.status_code for answer in both) == [202, 404]
        assert (await delete(system, "s1", headers=ALICE)).status_code == 404


async def test_s39_a_delete_insists_on_a_revision(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        revision = (await system.chat("s1"))["revision"]
        late = await delete(system, "s1", params={"expected_revision": revision - 1})
        assert (late.status_code, late.json()["code"], late.json()["revision"]) == (409, "conversation_conflict", revision)
        assert (await delete(system, "s1", params={"expected_revision": "soon"})).status_code == 422
        sent = [
            delete(system, "s1", params={"expected_revision": revision}),
            system.post("/chat", {"session_id": "s1", "content": "wait", "expected_revision": revision}),
        ]
        gone, said = await asyncio.gather(*sent)
        assert (gone.status_code, said.status_code) in [(202, 409), (202, 404), (409, 200)], (gone.text, said.text)
        left = (await system.get("/sessions/s1"))["revision"] if gone.status_code == 409 else None
        assert left is None or (await delete(system, "s1", params={"expected_revision": left})).status_code == 202
        assert await status(system, "/sessions/s1") == 404


async def test_the_id_of_a_deleted_session_is_free_at_once(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        first = await system.chat("s1", id="m1")
        feed = (await system.get("/sessions/s1/changes"))["next_cursor"]
        await delete(system, "s1")
        again = await system.chat("s1", id="m1")
        assert (again["turn_number"], again["error"]) == (1, None)
        assert again["turn_id"] != first["turn_id"]
        stale = await system.http.get("/api/sessions/s1/changes", params={"after": feed})
        assert (stale.status_code, stale.json()["code"]) == (422, "bad_request")


async def test_who_waits_for_a_turn_of_a_deleted_session_is_told_404(database_url: str, temporal_address: str) -> None:
    scripted = script(hangs("par"))
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        waiting = asyncio.create_task(system.post("/chat", {"session_id": "s1", "content": "hi"}))
        await system.until(lambda: scripted.requests)
        behind = asyncio.create_task(system.post("/chat", {"session_id": "s1", "content": "then", "when_busy": "enqueue"}))
        await system.accepted("s1", 2)
        assert (await system.apis[1].delete("/api/sessions/s1")).status_code == 202
        async with asyncio.timeout(PATIENCE_SECONDS):
            answers = [await waiting, await behind]
        assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(404, "not_found")] * 2
        assert len(scripted.requests) == 1


@pytest.mark.parametrize("path", ["/chat", "/chat/stream"])
async def test_who_learns_of_a_turn_when_its_session_is_gone_already_is_told_404(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """The answer of the session's workflow took longer than the session's whole end."""
    go_on, offer = asyncio.Event(), Workflows.message

    async def late(*asked: Any) -> Any:
        receipt = await offer(*asked)
        await go_on.wait()
        return receipt

    monkeypatch.setattr(Workflows, "message", late)
    async with running_system(database_url, temporal_address, script(hangs("par"))) as system, asyncio.timeout(PATIENCE_SECONDS):
        waiting = asyncio.create_task(system.post(path, {"session_id": "s1", "content": "hi"}))
        await system.until(lambda: system.script.requests)
        assert (await delete(system, "s1")).status_code == 202
        go_on.set()
        answer = await waiting
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


async def test_readers_of_a_deleted_session_end_as_a_stream_that_is_whole(database_url: str, temporal_address: str) -> None:
    scripted = script(hangs("par"))
    async with running_system(database_url, temporal_address, scripted) as system:
        app = create_app(system.settings, temporal_address=temporal_address)
        app.dependency_overrides[identify] = callers_of(system.tenant)
        async with served(app) as client:
            turn = await system.submit("s1")
            await system.until(lambda: scripted.requests)
            urls = ["/api/sessions/s1/events", f"/api/sessions/s1/events?until=turn&after=before:{turn['turn_id']}"]
            seen: list[list[str]] = [[] for _ in urls]
            readers = [asyncio.create_task(_read_all(client, url, types)) for url, types in zip(urls, seen, strict=True)]
            await system.until(lambda: all(seen))
            assert (await client.delete("/api/sessions/s1")).status_code == 202
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*readers)
            assert [types[0] for types in seen] == ["turn.started"] * 2


async def _read_all(client: httpx.AsyncClient, url: str, seen: list[str]) -> None:
    """Notes the types of a stream's events as they come. Raises if the stream is cut."""
    async with opened(client, url) as (response, frames):
        assert response.status_code == 200
        async for frame in frames:
            seen.append(frame.type)


@pytest.fixture
async def expiring(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    """The app with a time to live, while Temporal is not there."""
    app = create_app(settings.model_copy(update={"session_ttl_hours": 1.0}), temporal_address=NOWHERE)
    app.dependency_overrides[identify] = caller_of_headers
    async with running(app) as client:
        yield client


async def test_r177_an_expired_session_reads_as_absent_before_its_timer(expiring: httpx.AsyncClient, seed: Begin) -> None:
    past, future = (datetime.now(UTC) + timedelta(seconds=seconds) for seconds in (-1, 60))
    await seed("over").session(expires_at=past)
    await seed("lives").session(expires_at=future)
    busy = await seed("busy").session(expires_at=past)
    await busy.turn("t1", 1)
    waiting = await seed("waits").session(expires_at=past)
    async with waiting.conn.transaction():
        await waiting.branch(0, 0, [0], [2_147_483_647])
        await waiting.message("a1", None, 0, role="assistant")
    await waiting.call("c1", "a1", segment=0)
    await waiting.batch("a1")
    shown = (await expiring.get("/api/sessions")).json()["sessions"]
    assert {line["session_id"] for line in shown} == {"lives", "busy"}
    assert (await expiring.get("/api/host-actions")).json()["host_actions"] == []
    for path in ("", "/messages", "/tree", "/events", "/changes", "/messages/a1", "/messages/a1/prompt"):
        for session in ("over", "waits"):
            assert (await expiring.get(f"/api/sessions/{session}{path}")).status_code == 404
    assert (await expiring.get("/api/sessions/busy")).json()["status"] == "running"


async def test_r177_a_pending_action_holds_a_session_where_that_is_set(settings: Settings, seed: Begin) -> None:
    held = settings.model_copy(update={"session_ttl_hours": 1.0, "session_hold_while_pending": True})
    waiting = await seed("waits").session(expires_at=datetime.now(UTC) - timedelta(seconds=1))
    async with waiting.conn.transaction():
        await waiting.branch(0, 0, [0], [2_147_483_647])
        await waiting.message("a1", None, 0, role="assistant")
    await waiting.call("c1", "a1", segment=0)
    await waiting.batch("a1")
    app = create_app(held, temporal_address=NOWHERE)
    app.dependency_overrides[identify] = callers_of("default")
    async with running(app) as client:
        assert (await client.get("/api/sessions/waits")).json()["status"] == "waiting_host"
        assert len((await client.get("/api/host-actions")).json()["host_actions"]) == 1


async def test_r177_a_first_message_under_an_expired_id_begins_anew(database_url: str, temporal_address: str) -> None:
    """No worker was there when its time was over: neither the timer nor the rows' end have come."""
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("new"))
    async with running_system(database_url, temporal_address, scripted, session_ttl_hours=4.0 / 3600) as system:
        old = await system.chat("s1")
    await asyncio.sleep(4.1)
    async with running_system(database_url, temporal_address, scripted, like=system, session_ttl_hours=1.0) as system:
        fresh = await system.chat("s1", "hello again")
        assert (fresh["turn_number"], fresh["content"]) == (1, "new")
        assert fresh["turn_id"] != old["turn_id"]
        assert [row["content"] for row in await system.messages("s1")] == ["hello again", "new"]
