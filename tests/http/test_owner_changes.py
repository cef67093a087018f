"""A session changes hands while somebody waits for it or reads it."""

import asyncio
import dataclasses
from collections.abc import Callable
from functools import partial
from uuid import UUID

from activities.db.events import EventLog, Owned
from activities.db.pool import Database
from api.access import identify
from api.app import create_app
from api.tails import Tails
from settings import Settings
from tests.http.conftest import NOWHERE, caller_of_headers, served, served_beside
from tests.http.seeding import Seed
from tests.http.sse import opened
from tests.models import says, script, waits
from tests.system import running_system

EVENTS = "/api/sessions/s1/events"
ALICE, BOB = {"x-test-principal": "alice"}, {"x-test-principal": "bob"}


async def test_r41_who_had_a_session_is_told_nothing_of_it_any_more(database_url: str, temporal_address: str) -> None:
    """Streams end on every process, who waits for a turn is answered 404; who has the session now and admins read on."""
    go = asyncio.Event()
    scripted = script(says("Mine."), waits(go, "Before. ", "After."))
    async with running_system(database_url, temporal_address, scripted) as system, served_beside(system, temporal_address) as beside:
        post = partial(system.post, "/chat", headers=ALICE)
        assert (await post({"session_id": "s1", "content": "hello"})).status_code == 200
        waiting = asyncio.create_task(post({"session_id": "s1", "content": "go on"}))
        async with opened(beside, EVENTS, headers=ALICE) as (_, hers), opened(beside, EVENTS) as (_, admins):
            while (await anext(hers)).data.get("text") != "Before. ":
                pass
            assert (await system.http.patch("/api/sessions/s1", json={"owner_id": "bob"})).status_code == 200
            assert [frame async for frame in hers] == []
            go.set()
            assert (await waiting).json()["code"] == "not_found"
            while not (await anext(admins)).data.get("text", "").endswith("After."):  # a reader that is late gets it in one piece
                pass
        assert (await beside.get(EVENTS, headers=ALICE)).status_code == 404
        async with opened(beside, f"{EVENTS}?until=turn", headers=BOB) as (_, his):
            assert [frame.type async for frame in his][-1] == "turn.completed"
        assert (await system.http.patch("/api/sessions/s1", json={"owner_id": None})).status_code == 200
        assert (await beside.get(EVENTS, headers=BOB)).status_code == 404


class SlowLog(EventLog):
    """Keeps the first answer about an owner back until it is let go."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.answered, self.go = asyncio.Event(), asyncio.Event()

    async def owned(self, session_uid: UUID) -> Owned | None:
        found = await super().owned(session_uid)
        if not self.answered.is_set():
            self.answered.set()
            await self.go.wait()
        return found


async def test_r41_an_older_word_about_the_owner_does_not_count_against_a_newer_one(
    settings: Settings, seed: Callable[[str], Seed]
) -> None:
    s = await seed("s1").session(owner="alice")
    await s.event("turn.started")
    app = create_app(settings, temporal_address=NOWHERE)
    app.dependency_overrides[identify] = caller_of_headers
    async with served(app) as client:
        log = SlowLog(app.state.api.database)
        app.state.api = dataclasses.replace(app.state.api, log=log, tails=Tails(log, app.state.api.feed, settings))
        late = asyncio.create_task(client.get(f"{EVENTS}?until=turn", headers=ALICE))
        await log.answered.wait()
        async with opened(client, EVENTS, headers=ALICE) as (_, hers):
            assert (await anext(hers)).type == "turn.started"
            await s.conn.execute("update sessions set owner = 'bob' where session_uid = $1", s.uid)
            await s.notify({"r": 1})
            assert [frame async for frame in hers] == []
        await s.event("turn.completed")
        log.go.set()
        assert (await late).status_code == 404
