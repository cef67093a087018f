"""Who a request is from, in each access mode but jwt (test_tokens.py), and how often it may ask."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import httpx
import pytest

from activities.db.api_keys import ApiKeys
from activities.db.pool import Database
from api.app import create_app
from cli.chat.client import ApiClient, ApiProblem
from settings import AccessSettings, Settings
from tests.http.conftest import NOWHERE, running, served
from tests.http.seeding import Seed

NOW = datetime.now(UTC)
Said = list[tuple[str, str | bytes]]


@asynccontextmanager
async def guarded(settings: Settings, **access: Any) -> AsyncIterator[httpx.AsyncClient]:
    """The app in an access mode."""
    changed = settings.model_copy(update={"access": AccessSettings(**access)})
    async with running(create_app(changed, temporal_address=NOWHERE)) as client:
        yield client


@pytest.fixture
async def keys(settings: Settings) -> AsyncIterator[ApiKeys]:
    database = await Database.open(settings.database)
    yield ApiKeys(database)
    await database.close()


async def issue(keys: ApiKeys, principal: str, *roles: str, tenant: str = "default", **options: Any) -> str:
    """A key as its holder has it."""
    text, _ = await keys.create(tenant, principal, roles, **{"now": NOW, "expires_at": None, "by": "test", **options})
    return text


def bearing(text: str, **headers: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}", **{name.replace("_", "-"): value for name, value in headers.items()}}


def raw(said: Said) -> list[tuple[bytes, bytes]]:
    """Headers as they go over the wire: text in UTF-8, bytes as they are."""
    return [(name.encode(), value if isinstance(value, bytes) else value.encode()) for name, value in said]


def said(authorization: str) -> Said:
    return [("Authorization", authorization)]


def unauthenticated(answer: httpx.Response, *words: str) -> None:
    """401 as a problem that says what to do, and how."""
    assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated"), answer.text
    assert answer.headers["content-type"] == "application/problem+json" and "realm=" in answer.headers["www-authenticate"]
    assert all(word in answer.json()["detail"] for word in words), answer.text


async def test_r44_a_proxy_must_say_who_calls(settings: Settings) -> None:
    wrong: list[tuple[Said, str]] = [
        ([], "missing"),
        ([("X-Outlast-Tenant", "t"), ("X-Outlast-Roles", "admin")], "missing"),
        ([("X-Outlast-Principal", "")], "is empty"),
        ([("X-Outlast-Principal", "alice"), ("X-Outlast-Principal", "bob")], "came twice"),
        ([("X-Outlast-Principal", "alice"), ("X-Outlast-Tenant", "a"), ("X-Outlast-Tenant", "b")], "came twice"),
        ([("X-Outlast-Principal", "Jürgen".encode("latin-1"))], "not UTF-8"),
        ([("X-Outlast-Principal", "a\x7fb")], "control"),
        ([("X-Outlast-Principal", "é".encode() * 128)], "255 bytes"),
    ]
    async with guarded(settings, mode="header") as client:
        for headers, word in wrong:
            unauthenticated(await client.get("/api/sessions", headers=raw(headers)), word)
            unauthenticated(await client.post("/api/chat", content=b"not even JSON", headers=raw(headers)), word)


async def test_s17_names_that_look_alike_share_nothing(settings: Settings, conn: asyncpg.Connection) -> None:
    names = ["a_b", "a:b", "a/b", "a b", "a%2Fb", "a.b", "Ä", "A\u0308", "ä", "日本", "a" * 255]
    for number, tenant in enumerate(names):
        for principal in names:
            await Seed(conn, f"s{number}_{names.index(principal)}").session(owner=principal, tenant=tenant)
    async with guarded(settings, mode="header") as client:
        for number, tenant in enumerate(names):
            for principal in names:
                headers = raw([("X-Outlast-Tenant", tenant), ("X-Outlast-Principal", principal)])
                found = (await client.get("/api/sessions", headers=headers)).json()["sessions"]
                assert [line["session_id"] for line in found] == [f"s{number}_{names.index(principal)}"]
        plain = (await client.get("/api/sessions", headers={"X-Outlast-Principal": "a_b"})).json()
        assert plain["sessions"] == [], "without a tenant it is `default`"


async def test_r40_roles_come_from_the_proxy_and_unknown_ones_are_nothing(settings: Settings, conn: asyncpg.Connection) -> None:
    await Seed(conn, "s1").session(owner="alice")
    async with guarded(settings, mode="header") as client:
        for roles, seen in (("admin", 1), ("auditor, admin", 1), ("auditor", 0), ("Admin", 0), ("service", 0)):
            headers = {"X-Outlast-Principal": "root", "X-Outlast-Roles": roles}
            assert len((await client.get("/api/sessions", headers=headers)).json()["sessions"]) == seen
            assert (await client.get("/api/sessions/s1", headers=headers)).status_code == (200 if seen else 404)


async def test_s27_a_key_says_who_calls(settings: Settings, keys: ApiKeys, conn: asyncpg.Connection) -> None:
    await Seed(conn, "s1").session(owner="alice")
    alice, elsewhere = await issue(keys, "alice"), await issue(keys, "alice", tenant="other")
    async with guarded(settings, mode="key") as client:
        assert (await client.get("/api/sessions/s1", headers=bearing(alice))).status_code == 200
        assert (await client.get("/api/sessions/s1", headers=bearing(elsewhere))).status_code == 404
        lower = {"authorization": f"bearer  {alice}", "X-Outlast-Roles": "admin"}
        assert (await client.get("/api/sessions/s1", headers=lower)).status_code == 200
        stored = await conn.fetch("select * from api_keys")
        assert len(stored) == 2 and alice[17:] not in str(stored)


async def test_r44_a_key_must_be_there_and_good(settings: Settings, keys: ApiKeys) -> None:
    old = await issue(keys, "alice", now=NOW - timedelta(days=2), expires_at=NOW - timedelta(seconds=1))
    gone, good = await issue(keys, "alice"), await issue(keys, "alice")
    assert await keys.revoke(gone[4:16], now=NOW, by="test") and not await keys.revoke(gone[4:16], now=NOW, by="test")
    forged = good[:-1] + ("A" if good[-1] != "A" else "B")
    wrong: list[Said] = [
        [],
        [("X-Outlast-Principal", "alice")],
        [("Authorization", f"Basic {good}")],
        [("Authorization", "Bearer")],
        [("Authorization", good)],
        [("Authorization", f"Bearer {good}"), ("Authorization", f"Bearer {good}")],
        *(said(f"Bearer {text}") for text in (old, gone, forged, "olk_", good.upper(), f"olk_{'0' * 12}_{'A' * 43}", good + "A")),
    ]
    async with guarded(settings, mode="key") as client:
        for headers in wrong:
            unauthenticated(await client.get("/api/host-actions", headers=raw(headers)), "key")
            unauthenticated(await client.post("/api/chat", content=b"{", headers=raw(headers)), "key")
        assert (await client.get("/api/host-actions", headers=bearing(good))).status_code == 200


async def test_r40_in_mode_local_headers_mean_nothing(settings: Settings, conn: asyncpg.Connection) -> None:
    await Seed(conn, "s1").session(owner="alice")
    async with guarded(settings, mode="local") as client:
        for headers in ({}, {"X-Outlast-Principal": "bob", "X-Outlast-Tenant": "other", "X-Outlast-Roles": ""}, bearing("olk_nonsense")):
            assert (await client.get("/api/sessions/s1", headers=headers)).json()["owner_id"] == "alice"


async def test_s28_a_service_speaks_for_others_with_no_other_role(settings: Settings, keys: ApiKeys, conn: asyncpg.Connection) -> None:
    for owner in ("alice", "bob", "Jürgen"):
        await Seed(conn, f"s-{owner[0]}").session(owner=owner)
    bot, both = await issue(keys, "bot", "service"), await issue(keys, "both", "service", "admin")
    boss, bob = await issue(keys, "boss", "admin"), await issue(keys, "bob")

    async with guarded(settings, mode="key") as client:

        async def listed(text: str, **headers: str) -> Any:
            answer = await client.get("/api/sessions", headers=raw(list(bearing(text, **headers).items())))
            if answer.status_code != 200:
                return answer.status_code
            return sorted(line["session_id"] for line in answer.json()["sessions"])

        assert await listed(bot) == []
        assert await listed(bot, X_Outlast_Principal="alice") == ["s-a"]
        assert await listed(bot, X_Outlast_Principal="Jürgen", X_Outlast_Tenant="default") == ["s-J"]
        assert await listed(both) == ["s-J", "s-a", "s-b"]
        assert await listed(both, X_Outlast_Principal="alice") == ["s-a"]
        assert await listed(bob, X_Outlast_Principal="bob") == ["s-b"]
        assert await listed(bob, X_Outlast_Principal="alice") == 403
        assert await listed(boss, X_Outlast_Principal="alice") == 403
        assert await listed(bot, X_Outlast_Tenant="other") == 403
        assert await listed(bot, X_Outlast_Principal=" ") == 422


async def test_r44_a_keys_last_use_is_noted_once_a_minute(settings: Settings, keys: ApiKeys) -> None:
    text = await issue(keys, "alice")

    async def last() -> datetime | None:
        return (await keys.of_tenant("default"))[0].last_used_at

    assert await last() is None
    for seconds, noted in ((0, 0), (59, 0), (60, 60), (61, 60), (121, 121)):
        assert await keys.find(text, NOW + timedelta(seconds=seconds))
        assert await last() == NOW + timedelta(seconds=noted)


@pytest.mark.usefixtures("one_day")
async def test_too_many_requests_are_refused_before_anything(settings: Settings, keys: ApiKeys, conn: asyncpg.Connection) -> None:
    """By the day: each new period of a limit forgives something, and a minute may end between two requests."""
    alice, bot = await issue(keys, "alice"), await issue(keys, "bot", "service")
    async with guarded(settings, mode="key", rate_limit="3/day; 100/month") as client:
        for _ in range(3):
            assert (await client.get("/api/sessions", headers=bearing(alice))).status_code == 200
        for answer in (
            await client.get("/api/sessions", headers=bearing(alice)),
            await client.post("/api/chat", content=b"{", headers=bearing(alice)),
        ):
            assert (answer.status_code, answer.json()["code"]) == (429, "rate_limited")
            assert 1 <= int(answer.headers["retry-after"]) <= 86400
        for principal in ("a/b", "a", "b"):
            assert (await client.get("/api/sessions", headers=bearing(bot, X_Outlast_Principal=principal))).status_code == 200
        assert (await client.get("/api/sessions", headers=bearing(bot))).status_code == 429, "a key's requests count together"
        assert (await client.get("/health")).status_code == 200
    async with guarded(settings, mode="header", rate_limit="1/day") as client:
        for tenant, principal in (("a", "b/c"), ("a/b", "c"), ("a", "b")):
            headers = {"X-Outlast-Tenant": tenant, "X-Outlast-Principal": principal}
            assert (await client.get("/api/sessions", headers=headers)).status_code == 200
            assert (await client.get("/api/sessions", headers=headers)).status_code == 429


async def test_s28_the_terminal_client_sends_its_key(settings: Settings, keys: ApiKeys, conn: asyncpg.Connection) -> None:
    await Seed(conn, "s1").session(owner="alice")
    text = await issue(keys, "alice")
    changed = settings.model_copy(update={"access": AccessSettings(mode="key")})
    async with served(create_app(changed, temporal_address=NOWHERE)) as client:
        url = str(client.base_url)
        with closing(ApiClient(url, print, text)) as knows, closing(ApiClient(url, print)) as does_not:
            found = await asyncio.to_thread(knows.get, "/api/sessions/s1")
            assert found["owner_id"] == "alice"
            with pytest.raises(ApiProblem, match="this needs an API key"):
                await asyncio.to_thread(does_not.get, "/api/sessions/s1")
