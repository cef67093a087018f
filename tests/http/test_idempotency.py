"""The header `Idempotency-Key`, with everything real but the model."""

import asyncio
from typing import Any
from uuid import UUID

import httpx
import pytest
from pydantic_ai.exceptions import ModelHTTPError

from activities.db.keys import KeyOf, Keys, Request
from tests.models import calls, raises, says, script
from tests.system import System, running_system

CARD = {"segments": [{"kind": "component", "type": "chart", "data": [1]}]}
WAITED_FOR = "select true from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid))"
CALL = {"session_id": "s1", "tool_call_id": "c1", "tool_result": {"opened": True}}


def key(name: str, who: str) -> dict[str, str]:
    return {"Idempotency-Key": name} | ({"x-test-principal": who} if who else {})


async def send(system: System, method: str, path: str, body: Any = None, name: str = "k", api: int = 0, who: str = "") -> httpx.Response:
    return await system.apis[api].request(method, f"/api{path}", json=body, headers=key(name, who))


async def forgotten_by_the_workflow(system: System) -> None:
    await system.workflow("s1").terminate()


async def test_a_continuation_again_attaches_to_its_turn(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("It is open."))
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        await system.chat("s1")
        both = await asyncio.gather(*(send(system, "POST", "/chat", CALL, api=n) for n in range(2)))
        assert [answer.status_code for answer in both] == [200, 200]
        assert both[0].json() == both[1].json()
        await forgotten_by_the_workflow(system)
        assert (await send(system, "POST", "/chat", CALL)).json() == both[0].json()
        streamed = await send(system, "POST", "/chat/stream", CALL)
        assert streamed.status_code == 200 and both[0].json()["turn_id"] in streamed.text
        other = await send(system, "POST", "/chat", CALL | {"tool_result": "no"})
        assert (other.status_code, other.json()["code"]) == (409, "duplicate_id")
        assert (await system.resume("s1", "c1")).json()["code"] == "already_recorded"
        assert (await send(system, "POST", "/chat", CALL, name="fresh")).json()["code"] == "already_recorded"
        assert len(scripted.requests) == 2


async def test_a_continuation_whose_answer_was_not_kept_is_known_to_the_workflow(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("It is open."))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        first = await send(system, "POST", "/chat", CALL)
        await system.conn.execute("update idempotency_keys set status = null, answer = null")
        assert (await send(system, "POST", "/chat", CALL)).json() == first.json()
        assert len(scripted.requests) == 2


async def test_messages_cards_and_steering_without_an_id_are_one(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hello"))
    async with running_system(database_url, temporal_address, scripted) as system:
        first = await send(system, "POST", "/chat", {"content": "hi"}, name="new")
        assert (await send(system, "POST", "/chat", {"content": "hi"}, name="new")).json() == first.json()
        await system.conn.execute("update idempotency_keys set status = null, answer = null")  # the process died before it kept the answer
        assert (await send(system, "POST", "/chat", {"content": "hi"}, name="new")).json() == first.json()
        assert await system.conn.fetchval("select count(*) from sessions") == 1
        session = first.json()["session_id"]
        posted = await send(system, "POST", f"/sessions/{session}/messages", CARD, name="card")
        assert posted.status_code == 201
        again = await send(system, "POST", f"/sessions/{session}/messages", CARD, name="card")
        assert (again.status_code, again.json()) == (201, posted.json())
        words = {"session_id": session, "content": "be brief", "message_type": "steering"}
        steered = [await send(system, "POST", "/chat", words, name="steer") for _ in range(2)]
        assert steered[0].status_code == 202 and steered[0].json() == steered[1].json()
        assert await system.conn.fetchval("select count(*) from steering") == 1
        assert await system.conn.fetchval("select count(*) from messages where role = 'host'") == 1


async def test_changes_repairs_and_cancels_are_answered_as_before(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        writes: list[tuple[str, str, Any, Any]] = [
            ("POST", "/sessions/s1/repair", {}, {"expected_revision": 1}),
            ("POST", "/sessions/s1/cancel", {"turn_id": "later"}, {"turn_id": "other"}),
            ("PATCH", "/sessions/s1", {"title": "Orders"}, {"title": "Other"}),
        ]
        firsts = []
        for method, path, body, other in writes:
            firsts.append(await send(system, method, path, body, name=path + method))
            assert firsts[-1].status_code == 200, firsts[-1].text
            changed = await send(system, method, path, other, name=path + method)
            assert (changed.status_code, changed.json()["code"]) == (409, "duplicate_id")
        assert firsts[0].json()["repaired_calls"] == ["c1"]
        await forgotten_by_the_workflow(system)
        for (method, path, body, _), first in zip(writes, firsts, strict=True):
            again = await send(system, method, path, body, name=path + method)
            assert (again.status_code, again.json()) == (200, first.json())


async def test_a_retry_is_one_attempt(database_url: str, temporal_address: str) -> None:
    scripted = script(raises(ModelHTTPError(401, "scripted")), says("hello"))
    async with running_system(database_url, temporal_address, scripted) as system:
        failed = await system.chat("s1")
        path = f"/sessions/s1/turns/{failed['turn_id']}/retry"
        both = await asyncio.gather(*(send(system, "POST", path, {}) for _ in range(2)))
        assert [(answer.status_code, answer.json()["attempt"]) for answer in both] == [(200, 2), (200, 2)]
        assert (await send(system, "POST", path, {})).json() == both[0].json()
        assert (await send(system, "POST", path, {}, name="fresh")).json()["code"] == "not_retryable"


async def test_a_deletion_again_names_its_erasure(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await send(system, "POST", "/chat", {"session_id": "s1", "content": "secret"}, name="message")
        await send(system, "POST", "/sessions/s1/messages", CARD | {"content": "secret"}, name="card")
        await send(system, "PATCH", "/sessions/s1", {"title": "secret"}, name="title")
        first = await send(system, "DELETE", "/sessions/s1")
        assert first.status_code == 202
        again = await send(system, "DELETE", "/sessions/s1")
        assert (again.status_code, again.json()) == (202, first.json())
        assert (await send(system, "DELETE", "/sessions/s1", name="fresh")).status_code == 404
        kept = await system.conn.fetch("select route, answer from idempotency_keys where answer is not null")
        assert [row["route"] for row in kept] == ["delete s1"] and "secret" not in kept[0]["answer"]
        again = await send(system, "POST", "/chat", {"session_id": "s1", "content": "secret"}, name="message")
        assert (again.status_code, again.json()["turn_number"]) == (200, 1)


async def test_r38_a_former_owner_is_not_told_again(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(raises(ModelHTTPError(401, "scripted")), says("hello"))) as system:
        failed = (await send(system, "POST", "/chat", {"session_id": "s1", "content": "secret"}, name="chat", who="alice")).json()
        writes: list[tuple[str, str, Any, str]] = [
            ("POST", "/chat", {"session_id": "s1", "content": "secret"}, "chat"),
            ("POST", f"/sessions/s1/turns/{failed['turn_id']}/retry", {}, "retry"),
            ("POST", "/chat/stream", {"session_id": "s1", "content": "secret"}, "chat"),
            ("POST", "/sessions/s1/messages", CARD, "card"),
            ("PATCH", "/sessions/s1", {"title": "secret"}, "title"),
            ("POST", "/sessions/s1/cancel", {}, "cancel"),
            ("POST", "/sessions/s1/repair", {}, "repair"),
            ("POST", "/chat", {"session_id": "s1", "content": "secret", "message_type": "steering"}, "steering"),
        ]

        async def all_of_them(who: str) -> list[httpx.Response]:
            return [await send(system, method, path, body, name=name, who=who) for method, path, body, name in writes]

        assert {answer.status_code for answer in await all_of_them("alice")} <= {200, 201, 202}
        firsts = await all_of_them("alice")
        await system.http.patch("/api/sessions/s1", json={"owner_id": "bob"})
        absent = await system.http.get("/api/sessions/absent", headers={"x-test-principal": "alice"})
        assert {(answer.status_code, answer.content) for answer in await all_of_them("alice")} == {(404, absent.content)}
        await system.http.patch("/api/sessions/s1", json={"owner_id": "alice"})
        assert [answer.content for answer in await all_of_them("alice")] == [answer.content for answer in firsts]


async def test_s20_an_answer_that_comes_late_is_kept_with_its_own_session_or_not_at_all(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        keys, request = Keys(system.kit.db), Request("chat", "digest")

        async def uid() -> UUID:
            await system.chat("s1")
            found: UUID = await system.conn.fetchval("select session_uid from sessions where session_id = 's1'")
            return found

        async def kept(name: str, session_uid: UUID) -> str | None:
            key = KeyOf(system.tenant, "local", name)
            await keys.keep(key, request, (await keys.reserve(key, request)).since, 200, '"secret"', session_uid)
            return (await keys.reserve(key, request)).answer

        first = await uid()
        assert await kept("a", first) == '"secret"'
        assert (await system.http.delete("/api/sessions/s1")).status_code == 202
        second = await uid()
        assert await kept("a", first) is None, "the first session is gone, whoever has its id"
        assert await kept("b", second) == '"secret"'
        async with system.conn.transaction():
            await system.conn.execute("delete from sessions where session_uid = $1", second)
            late = asyncio.create_task(kept("c", second))
            await system.until(lambda: system.conn.fetchval(WAITED_FOR))
        assert await late is None, "it waits for the deletion, and goes with it"


async def test_what_was_refused_has_not_used_its_key(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("done"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        assert (await send(system, "POST", "/sessions/s1/messages", CARD)).json()["code"] == "busy"
        await system.resume("s1", "c1")
        assert (await send(system, "POST", "/sessions/s1/messages", CARD)).status_code == 201


async def test_keys_are_each_principals_own_and_live_for_a_day(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        for who, session in (("alice", "a"), ("bob", "b")):
            answer = await send(system, "POST", "/chat", {"session_id": session, "content": "hi"}, who=who)
            assert answer.status_code == 200
        taken = await send(system, "POST", "/chat", {"session_id": "c", "content": "hi"}, who="alice")
        assert taken.json()["code"] == "duplicate_id"
        await system.conn.execute("update idempotency_keys set created_at = created_at - interval '24 hours'")
        assert (await send(system, "POST", "/chat", {"session_id": "c", "content": "hi"}, who="alice")).status_code == 200
        assert await system.conn.fetchval("select count(*) from idempotency_keys") == 1


@pytest.mark.parametrize("name", ["", "x" * 256, "tab\there", "größe".encode().decode("latin-1")])
async def test_a_key_is_255_printable_characters_at_most(offline: httpx.AsyncClient, name: str) -> None:
    raw = [(b"idempotency-key", name.encode("latin-1"))]
    answer = await offline.post("/api/sessions/s1/cancel", json={}, headers=httpx.Headers(raw))
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_request")
