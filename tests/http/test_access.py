"""Each route for each kind of caller, in each access mode in which callers differ."""

from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import pytest
from fastapi import FastAPI
from fastapi.routing import iter_route_contexts

from activities.db.api_keys import ApiKeys
from api.app import create_app
from settings import AccessSettings, Settings
from tests.http.access_table import CALLERS, TABLE, TRUSTED, Row, Who
from tests.http.test_jwt import ISSUER, Provider, published
from tests.models import says, script
from tests.system import System, running_system

Names = dict[str, str]
Headers = dict[str, str]
HERE = ("here", "alice", "")
WHO: dict[Who, tuple[str, str, str]] = {
    "owner": HERE,
    "other": ("here", "bob", ""),
    "namesake": ("there", "alice", ""),
    "admin": ("here", "root", "admin"),
    "foreign admin": ("there", "root", "admin"),
    "service": ("here", "bot", "service"),
    "service for owner": ("here", "alice", "service"),
    "service for other": ("here", "bob", "service"),
}


def routes_of(app: FastAPI) -> set[str]:
    """`METHOD /path` of everything that the app answers, the files of the documents' page aside."""
    found = iter_route_contexts(app.routes)
    return {f"{method} {route.path}" for route in found for method in route.methods or () if method != "HEAD"}


def test_r38_the_table_has_every_route_that_the_app_has(settings: Settings) -> None:
    assert routes_of(create_app(settings)) == {row.route for row in TABLE}


@dataclass
class Sweep:
    """A running system whose callers are those of the table. `tried` are the combinations (route, caller, whether it exists)."""

    system: System
    headers: dict[Who, Headers]
    tried: list[tuple[str, Who, bool]] = field(default_factory=list)

    async def ask(self, row: Row, who: Who, names: Names) -> httpx.Response:
        method, path = row.method, row.path(names)
        return await self.system.http.request(method, path, json=row.content(names), headers=self.headers.get(who, {}))

    async def session(self) -> Names:
        """A session of the owner, with one turn."""
        chat = {"session_id": f"s-{uuid4().hex[:8]}", "id": "m1", "turn_id": "t1", "content": "hello"}
        answer = await self.system.http.post("/api/chat", json=chat, headers=self.headers["owner"])
        assert answer.status_code == 200, answer.text
        return {"session_id": chat["session_id"], "turn_id": "t1", "message_id": "m1", "pause_token": "none", "erasure_id": str(uuid4())}

    async def world(self) -> Names:
        """What the table's paths name: a session of the owner, and the erasure of another one."""
        names, gone = await self.session(), await self.session()
        answer = await self.system.http.delete(f"/api/sessions/{gone['session_id']}", headers=self.headers["owner"])
        return {**names, "erasure_id": answer.json()["erasure_id"]}

    async def look(self, names: Names) -> list[Any]:
        """All that the owner sees of the session."""
        paths = (f"/api/sessions/{names['session_id']}{part}" for part in ("", "/messages", "/tree", "/changes"))
        return [(await self.system.http.get(path, headers=self.headers["owner"])).json() for path in paths]

    async def refused(self, names: Names) -> None:
        """Everyone who may not, on what is there and on what is not: nothing changes, and the two can't be told apart."""
        before = await self.look(names)
        absent = {**names, "session_id": "never-was", "erasure_id": str(uuid4())}
        for row in TABLE:
            seen: defaultdict[tuple[int, bytes], list[Who]] = defaultdict(list)
            for who in CALLERS:
                for there in (True, False):
                    expected = row.expected(who, there)
                    if expected == row.ok:
                        continue
                    answer = await self.ask(row, who, names if there else absent)
                    assert answer.status_code == expected, (row.route, who, there, answer.text)
                    assert answer.headers["content-type"] == "application/problem+json"
                    self.tried.append((row.route, who, there))
                    if expected == 404:
                        seen[answer.status_code, answer.content].append(who)
            assert len(seen) <= 1, (row.route, seen)
        assert await self.look(names) == before

    async def allowed(self, names: Names, *, only: Callable[[Row], bool] = lambda row: True) -> None:
        """Everyone who may. The list shows the session to those only who may see it."""
        for row in filter(only, TABLE):
            for who in CALLERS:
                if row.expected(who) != row.ok:
                    continue
                answer = await self.ask(row, who, await self.session() if row.fresh else names)
                assert answer.status_code == row.ok, (row.route, who, answer.text)
                self.tried.append((row.route, who, True))
                if row.route == "GET /api/sessions":
                    listed = [line["session_id"] for line in answer.json()["sessions"]]
                    assert (names["session_id"] in listed) == (who in TRUSTED), (who, listed)

    async def births(self) -> None:
        """An absent id is a session of whoever asks first, and then foreign to everyone else."""
        for row in (row for row in TABLE if row.kind == "births"):
            names = {"session_id": f"s-{uuid4().hex[:8]}"}
            assert (await self.ask(row, "other", names)).status_code == row.ok
            assert (await self.ask(row, "owner", names)).status_code == 404
            assert (await self.ask(row, "admin", names)).status_code == row.ok
            self.tried += [(row.route, "other", False), (row.route, "owner", True), (row.route, "admin", True)]


@asynccontextmanager
async def sweeping(url: str, address: str, **access: Any) -> AsyncIterator[Sweep]:
    settings = AccessSettings(**access)
    async with running_system(url, address, script(says("hello")), access=settings) as system:
        yield Sweep(system, {})


def place(sweep: Sweep, tenant: str) -> str:
    """A tenant that no other test has."""
    return f"{sweep.system.tenant}-{tenant}"


async def by_headers(sweep: Sweep) -> None:
    for who, (tenant, principal, roles) in WHO.items():
        said = {"X-Outlast-Tenant": place(sweep, tenant), "X-Outlast-Principal": principal, "X-Outlast-Roles": roles}
        sweep.headers[who] = said


async def by_key(sweep: Sweep) -> None:
    keys, now = ApiKeys(sweep.system.kit.db), datetime.now(UTC)
    for who, (tenant, principal, roles) in WHO.items():
        speaks = who.startswith("service for")
        holder = "bot" if speaks else principal
        text, _ = await keys.create(place(sweep, tenant), holder, [roles] if roles else [], now=now, expires_at=None, by="test")
        sweep.headers[who] = {"Authorization": f"Bearer {text}"} | ({"X-Outlast-Principal": principal} if speaks else {})


def by_token(sweep: Sweep, provider: Provider) -> None:
    for who, (tenant, principal, roles) in WHO.items():
        speaks = who.startswith("service for")
        text = provider.token("r1", sub="bot" if speaks else principal, tenant=place(sweep, tenant), roles=roles)
        sweep.headers[who] = {"Authorization": f"Bearer {text}"} | ({"X-Outlast-Principal": principal} if speaks else {})


@pytest.mark.parametrize("mode", ["header", "key"])
async def test_r38_r40_r46_every_route_for_every_kind_of_caller(database_url: str, temporal_address: str, mode: str) -> None:
    async with sweeping(database_url, temporal_address, mode=mode) as sweep:
        await (by_headers if mode == "header" else by_key)(sweep)
        names = await sweep.world()
        await sweep.refused(names)
        await sweep.allowed(names)
        await sweep.births()
        assert {(row.route, who) for row in TABLE for who in CALLERS} == {(route, who) for route, who, _ in sweep.tried}
        print(f"{mode}: {len(sweep.tried)} combinations")


async def test_r38_r40_tokens_open_what_keys_open(database_url: str, temporal_address: str) -> None:
    async with published() as provider:
        known = {"jwks_url": provider.url, "audience": "outlast", "issuer": ISSUER}
        async with sweeping(database_url, temporal_address, mode="jwt", **known) as sweep:
            by_token(sweep, provider)
            names = await sweep.world()
            await sweep.refused(names)
            await sweep.allowed(names, only=lambda row: row.method == "GET")
            print(f"jwt: {len(sweep.tried)} combinations")
