"""Stream tickets: a session's events for readers that can send no headers."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import asyncpg
import httpx
import pytest
from fastapi import HTTPException, Request

from api.access import identify
from api.app import create_app
from settings import Settings
from tests.http.conftest import NOWHERE, caller_of_headers, served
from tests.http.seeding import Seed
from tests.http.sse import until_turn_ends
from tests.http.test_streams import finished_turn
from tests.services import PATIENCE_SECONDS
from workflows.model.session import Caller

ALICE = {"x-test-principal": "alice"}
TICKET = "/api/sessions/s1/stream-ticket"
Begin = Callable[[str], Seed]


def known_only(request: Request) -> Caller:
    """An access mode that knows nobody without headers."""
    if "x-test-principal" not in request.headers:
        raise HTTPException(401)
    return caller_of_headers(request)


@asynccontextmanager
async def app_of(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(settings, temporal_address=NOWHERE)
    app.dependency_overrides[identify] = known_only
    async with served(app) as client:
        yield client


async def ticket_of(client: httpx.AsyncClient, session: str = "s1", **headers: str) -> str:
    answer = await client.post(f"/api/sessions/{session}/stream-ticket", headers=ALICE | headers)
    assert answer.status_code == 200, answer.text
    ticket: str = answer.json()["ticket"]
    return ticket


async def refusal(client: httpx.AsyncClient, ticket: str, session: str = "s1", **headers: str) -> tuple[int, str]:
    answer = await client.get(f"/api/sessions/{session}/events", params={"ticket": ticket, "until": "turn"}, headers=headers)
    return answer.status_code, answer.json()["code"]


async def own(conn: asyncpg.Connection, session: str = "s1", owner: str | None = "alice") -> None:
    await conn.execute("update sessions set owner = $2 where session_id = $1", session, owner)


async def test_a_ticket_reads_events_without_any_header(
    settings: Settings, seed: Begin, conn: asyncpg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    await finished_turn(seed)
    await own(conn)
    caplog.set_level(logging.DEBUG)
    async with app_of(settings) as client:
        whole = await until_turn_ends(client, "/api/sessions/s1/events?until=turn", **ALICE)
        assert (await client.get("/api/sessions/s1/events")).status_code == 401
        ticket = await ticket_of(client)
        url = f"/api/sessions/s1/events?until=turn&ticket={ticket}"
        assert await until_turn_ends(client, url) == whole
        # a browser comes back to the same URL with the last id that it got
        for place in (0, 3, len(whole) - 2):
            assert await until_turn_ends(client, url, **{"Last-Event-ID": whole[place].id}) == whole[place + 1 :]
        # it speaks for Alice, whoever sends it
        assert await until_turn_ends(client, url, **{"x-test-principal": "bob"}) == whole
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith(("httpx", "httpcore"))]
    assert ours and ticket not in "\n".join(ours)


async def test_a_ticket_is_given_to_who_may_read(settings: Settings, seed: Begin, conn: asyncpg.Connection) -> None:
    await finished_turn(seed)
    await own(conn)
    async with app_of(settings) as client:
        assert (await client.post(TICKET)).status_code == 401
        bob = await client.post(TICKET, headers={"x-test-principal": "bob"})
        assert (bob.status_code, bob.json()["code"]) == (404, "not_found")
        admin = await ticket_of(client, **{"x-test-principal": "root", "x-test-roles": "admin"})
        assert await until_turn_ends(client, f"/api/sessions/s1/events?until=turn&ticket={admin}")


async def test_a_ticket_is_for_one_session_of_one_owner(settings: Settings, seed: Begin, conn: asyncpg.Connection) -> None:
    await finished_turn(seed)
    await seed("s2").session()
    await own(conn)
    await own(conn, "s2")
    async with app_of(settings) as client:
        ticket = await ticket_of(client)
        absent = await client.get("/api/sessions/none/events", params={"ticket": ticket})
        other = await client.get("/api/sessions/s2/events", params={"ticket": ticket})
        assert (other.status_code, other.content) == (absent.status_code, absent.content)
        assert other.status_code == 404
        await own(conn, owner="bob")
        assert await refusal(client, ticket) == (404, "not_found")
        await own(conn)
        # the id may be taken again, by another session
        await conn.execute("delete from sessions where session_id = 's1'")
        await seed("s1").session()
        await own(conn)
        assert await refusal(client, ticket) == (404, "not_found")


async def test_a_ticket_that_is_over_or_none_is_401(settings: Settings, seed: Begin, conn: asyncpg.Connection) -> None:
    await finished_turn(seed)
    await own(conn)
    hasty = settings.model_copy(update={"stream_ticket_ttl_seconds": 0.001})
    async with app_of(settings) as client, app_of(hasty) as brief:
        ticket = await ticket_of(client)
        assert await refusal(client, ticket[:-2] + "xx") == (401, "invalid_ticket")
        assert await refusal(client, "nonsense", **ALICE) == (401, "invalid_ticket")
        over = await ticket_of(brief)

        async def refused() -> bool:
            return (await client.get("/api/sessions/s1/events", params={"ticket": over, "until": "turn"})).status_code == 401

        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await refused():
                await asyncio.sleep(0.05)
        assert await refusal(client, over, **{"Last-Event-ID": "3.0"}) == (401, "invalid_ticket")
