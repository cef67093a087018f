"""Redeeming pause tokens: what each refusal is, and that a token is spent once."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import jwt
import pytest
from pydantic import SecretStr

from activities.db.api_keys import ApiKeys
from api.signing import KeyRing
from settings import AccessSettings, BudgetSettings, LimitSettings
from tests.http.sse import until_turn_ends
from tests.http.test_host_actions import ONE, refused, tools
from tests.models import says, script, waits
from tests.services import SIGNING_KEY
from tests.system import System, running_system

ALICE, BOB = {"x-test-principal": "alice"}, {"x-test-principal": "bob"}
RESULT = {"tool_result": {"opened": True}}


async def asked(system: System, session: str, **body: Any) -> dict[str, Any]:
    """What Alice's message makes the model ask for."""
    answer = await system.post("/chat", {"session_id": session, "content": "go", **body}, headers=ALICE)
    assert answer.status_code == 200, answer.text
    pending: dict[str, Any] = answer.json()["pending_tool_call"]
    return pending


async def redeem(system: System, token: str, body: Any = RESULT, *, api: Any = 0, **headers: Any) -> httpx.Response:
    return await system.post(f"/resume/{token}", body, api=api, headers=ALICE | headers)


def said(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def signed_again(token: str, key: str = SIGNING_KEY, *, until: datetime | None = None, **changes: Any) -> str:
    """The same words, signed anew."""
    claims = jwt.decode(token, options={"verify_signature": False})
    expires = until or datetime.fromtimestamp(claims["exp"], UTC)
    own = {name: value for name, value in claims.items() if name not in ("aud", "exp")}
    return KeyRing.of([SecretStr(key)]).sign("pause token", own | changes, expires)


def tokens_in(value: Any) -> Iterator[str]:
    """Every pause token anywhere in an answer."""
    if isinstance(value, dict):
        if "pause_token" in value:
            yield value["pause_token"]
        for inner in value.values():
            yield from tokens_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from tokens_in(inner)


async def test_s48_every_refusal_leaves_the_token_good(database_url: str, temporal_address: str) -> None:
    scripted = script(ONE, says("done"))
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        token = (await asked(system, "s1"))["pause_token"]
        assert signed_again(token) == token
        ticket = (await system.post("/sessions/s1/stream-ticket", headers=ALICE)).json()["ticket"]
        foreign = "test:" + SIGNING_KEY.partition(":")[2][::-1].lstrip("=")
        for wrong in ("x", token[:-3] + "abd", token.replace(".", ".e", 1), ticket, signed_again(token, foreign)):
            assert said(await redeem(system, wrong)) == (401, "invalid_token")
        over = signed_again(token, until=datetime.now(UTC) - timedelta(seconds=2))
        assert said(await redeem(system, over)) == (410, "expired_token")
        for headers in (BOB, BOB | {"x-test-roles": "admin"}, BOB | {"x-test-roles": "service"}, ALICE | {"x-test-tenant": "elsewhere"}):
            assert said(await redeem(system, token, **headers)) == (403, "forbidden")
        assert said(await redeem(system, signed_again(token, session="00000000-0000-4000-8000-000000000009"))) == (404, "not_found")
        assert said(await redeem(system, signed_again(token, call="nobody"))) == (404, "not_found")
        assert said(await redeem(system, signed_again(token, digest="0" * 64))) == (409, "call_mismatch")
        stale = await redeem(system, token, RESULT | {"expected_revision": 99})
        assert said(stale) == (409, "conversation_conflict")
        assert len(scripted.requests) == 1
        # a service that speaks for Alice is Alice with another role
        done = await redeem(system, token, api=1, **{"x-test-roles": "service"})
        assert done.status_code == 200 and done.json()["content"] == "done", done.text
        assert (await tools(system, "s1"))["c1"]["output"] == {"opened": True}
        for api in range(2):
            assert refused(await redeem(system, token, {"tool_result": "other"}, api=api), "already_recorded", "completed")
        assert len(scripted.requests) == 2


async def test_s46_a_malformed_body_does_not_spend_the_token(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(ONE, says("ok"))) as system:
        token = (await asked(system, "s1"))["pause_token"]
        bodies: tuple[Any, ...] = (
            {},
            [],
            {"tool_outcome": "success"},
            RESULT | {"tool_outcome": "maybe"},
            RESULT | {"session_id": "s1"},
            RESULT | {"x": 1},
        )
        for body in bodies:
            assert said(await redeem(system, token, body)) == (422, "bad_request")
        path = f"/api/resume/{token}"
        for content, kind, status in (
            (b"{", "application/json", 422),
            (b'{"tool_result": "\\u0000"}', "application/json", 422),
            (b"x", "text/plain", 415),
        ):
            answer = await system.http.post(path, content=content, headers=ALICE | {"content-type": kind})
            assert answer.status_code == status
        denied = await redeem(system, token, {"tool_result": None, "tool_outcome": "denied"})
        assert denied.status_code == 200
        assert (await tools(system, "s1"))["c1"]["status"] == "denied"


async def test_s48_a_session_or_a_call_that_is_gone_or_superseded(database_url: str, temporal_address: str) -> None:
    scripted = script(ONE, says("never mind"), ONE, ONE, ONE)
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        first = (await asked(system, "s1"))["pause_token"]
        await system.post("/chat", {"session_id": "s1", "content": "forget it"}, headers=ALICE)
        assert refused(await redeem(system, first, api=1), "already_recorded", "superseded")
        second = (await asked(system, "s2"))["pause_token"]
        await system.post("/sessions/s2/repair", headers=ALICE)
        assert refused(await redeem(system, second), "already_recorded", "unknown")
        third = (await asked(system, "s3"))["pause_token"]
        assert (await system.http.delete("/api/sessions/s3", headers=ALICE)).status_code == 202
        assert said(await redeem(system, third)) == (404, "not_found")
        # the id is taken again, by a session that waits for a call of the same name and words
        again = await asked(system, "s3")
        assert (again["call_id"], again["arguments"]) == ("c1", {"url": "https://example.org"})
        assert said(await redeem(system, third)) == (404, "not_found")
        assert again["pause_token"] != third


async def test_s48_the_owner_changes(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(ONE, says("ok")), apis=2) as system:
        old = (await asked(system, "s1"))["pause_token"]

        async def give(owner: str | None) -> None:
            assert (await system.http.patch("/api/sessions/s1", json={"owner_id": owner})).status_code == 200

        await give("bob")
        assert said(await redeem(system, old)) == (403, "forbidden")
        assert said(await redeem(system, old, **BOB)) == (403, "forbidden")
        assert said(await redeem(system, old, **ALICE | {"x-test-roles": "admin"})) == (403, "forbidden")
        new = (await system.get("/sessions/s1", headers=BOB))["pending_action"]["pause_token"]
        await give(None)
        assert not list(tokens_in(await system.get("/sessions/s1")))
        assert said(await redeem(system, new, **BOB)) == (403, "forbidden")
        await give("bob")
        assert (await redeem(system, new, api=1, **BOB)).status_code == 200


async def test_l16_a_token_is_for_the_arguments_that_were_shown(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(ONE, says("ok"))) as system:
        shown = await asked(system, "s1")
        await system.conn.execute('update calls set arguments = \'{"url": "https://elsewhere.example"}\'')
        assert said(await redeem(system, shown["pause_token"])) == (409, "call_mismatch")
        # nor is a token for the changed ones taken: the session knows what the model asked for
        changed = (await system.get("/sessions/s1", headers=ALICE))["pending_action"]
        assert changed["arguments"] == {"url": "https://elsewhere.example"}
        assert said(await redeem(system, changed["pause_token"])) == (409, "call_mismatch")
        await system.conn.execute("update calls set arguments = $1", '{"url": "https://example.org"}')
        assert (await redeem(system, shown["pause_token"])).status_code == 200


async def test_s48_a_service_key_redeems_for_the_owner_and_for_nobody_else(database_url: str, temporal_address: str) -> None:
    access = AccessSettings(mode="key")
    async with running_system(database_url, temporal_address, script(ONE, says("ok")), access=access) as system:
        keys: dict[str, dict[str, str]] = {}
        for name, role in (("alice", ""), ("bot", "service"), ("root", "admin")):
            created = await ApiKeys(system.kit.db).create(
                system.tenant, name, [role] if role else [], now=datetime.now(UTC), expires_at=None, by="test"
            )
            keys[name] = {"authorization": f"Bearer {created[0]}"}
        asked_for = await system.post("/chat", {"session_id": "s1", "content": "go"}, headers=keys["alice"])
        path = f"/resume/{asked_for.json()['pending_tool_call']['pause_token']}"
        assert said(await system.post(path, RESULT)) == (401, "unauthenticated")
        for headers in (keys["root"], keys["bot"], keys["bot"] | {"x-outlast-principal": "bob"}):
            assert said(await system.post(path, RESULT, headers=headers)) == (403, "forbidden")
        assert (await system.post(path, RESULT, headers=keys["bot"] | {"x-outlast-principal": "alice"})).status_code == 200


async def test_s49_fifty_at_once_are_one(database_url: str, temporal_address: str) -> None:
    scripted = script(ONE, says("done"))
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        token = (await asked(system, "s1"))["pause_token"]
        answers = await asyncio.gather(*(redeem(system, token, {"tool_result": number}, api=number % 2) for number in range(50)))
        [accepted] = [number for number, answer in enumerate(answers) if answer.status_code == 200]
        others = [answer for number, answer in enumerate(answers) if number != accepted]
        assert [answer.text for answer in others if not refused(answer, "already_recorded", "completed")] == []
        assert (await tools(system, "s1"))["c1"]["output"] == accepted
        assert len(scripted.requests) == 2


async def test_s56_the_same_key_is_the_same_resume(database_url: str, temporal_address: str) -> None:
    scripted = script(ONE, says("done"))
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        token = (await asked(system, "s1"))["pause_token"]
        key = {"idempotency-key": "k1"}
        answers = await asyncio.gather(*(redeem(system, token, api=number % 2, **key) for number in range(6)))
        assert {answer.status_code for answer in answers} == {200} and len({answer.text for answer in answers}) == 1
        # also with a newer token of the call, and with one whose time is over meanwhile
        for until in (datetime.now(UTC) + timedelta(days=1), datetime.now(UTC) - timedelta(days=1)):
            again = await redeem(system, signed_again(token, until=until), api=1, **key)
            assert (again.status_code, again.text) == (200, answers[0].text)
        assert said(await redeem(system, token, {"tool_result": "other"}, **key)) == (409, "duplicate_id")
        assert refused(await redeem(system, token, **{"idempotency-key": "k2"}), "already_recorded", "completed")
        assert len(scripted.requests) == 2
        route = await system.conn.fetchval("select route from idempotency_keys where key = 'k1'")
        assert route.startswith("resume ") and token not in route


async def test_s55_s64_a_resume_streams_and_outlives_its_client(database_url: str, temporal_address: str) -> None:
    go = asyncio.Event()
    scripted = script(ONE, waits(go, "So ", "be it."))
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        token = (await asked(system, "s1"))["pause_token"]
        stream = {"accept": "text/event-stream"}
        broken = await redeem(system, token[:-3] + "abd", **stream)
        assert said(broken) == (401, "invalid_token") and broken.headers["content-type"] == "application/problem+json"
        leaving = asyncio.create_task(redeem(system, token, **stream))
        await system.until(lambda: len(scripted.requests) == 2)
        leaving.cancel()
        go.set()
        events = "/api/sessions/s1/events"
        whole = await until_turn_ends(system.apis[1], f"{events}?until=turn", **ALICE)
        second = await until_turn_ends(system.apis[1], f"{events}?until=turn&after={whole[-1].id}", **ALICE)
        assert "".join(frame.data["text"] for frame in second if frame.type == "text.delta") == "So be it."
        late = await redeem(system, token, **stream)
        assert refused(late, "already_recorded", "completed") and late.headers["content-type"] == "application/problem+json"


async def test_s64_prefer_and_accept_say_how_a_resume_answers(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(ONE, says("a"), ONE, says("b"))) as system:
        token = (await asked(system, "s1"))["pause_token"]
        accepted = await redeem(system, token, prefer="respond-async")
        assert accepted.status_code == 202 and accepted.json()["user_message_id"] is None
        frames = await until_turn_ends(system.http, accepted.json()["events"] + "&until=turn", **ALICE)
        assert frames[-2].data["content"] == "a"
        token = (await asked(system, "s2"))["pause_token"]
        answer = await redeem(system, token, accept="text/event-stream")
        assert answer.headers["content-type"].startswith("text/event-stream") and answer.headers["x-session-id"] == "s2"
        assert answer.text.rstrip().splitlines()[-2] == "event: turn.completed"


@pytest.mark.usefixtures("one_day")
async def test_s76_a_resume_is_held_to_the_budget_and_keeps_its_token(database_url: str, temporal_address: str) -> None:
    budget = BudgetSettings(day=LimitSettings(max_requests=1))
    async with running_system(database_url, temporal_address, script(ONE, says("ok")), budget=budget) as system:
        token = (await asked(system, "s1"))["pause_token"]
        over = await redeem(system, token)
        assert said(over) == (429, "usage_limit") and "retry-after" in over.headers
        await system.conn.execute("delete from usage_ledger")
        assert (await redeem(system, token)).status_code == 200
