"""Many readers of one session, and one that stops reading: neither costs the others, the turn or Postgres anything."""

import asyncio
import dataclasses
import os
from collections.abc import Callable
from uuid import UUID

from activities.db.events import Cursor, Event, EventLog
from activities.db.pool import Database
from api.access import identify
from api.app import create_app
from api.tails import Tails
from settings import ApiSettings, Settings
from tests.http.conftest import NOWHERE, served
from tests.http.seeding import WHOLE_BRANCH, Seed
from tests.http.sse import shown_text, until_turn_ends
from tests.http.wire import asked, frames_of
from tests.models import says, script
from tests.system import callers_of, running_system

Begin = Callable[[str], Seed]
READERS = 1000 if os.environ.get("TEST_LONG") else 40


class CountingLog(EventLog):
    """Counts what the table is asked for."""

    def __init__(self, database: Database) -> None:
        super().__init__(database)
        self.reads = 0

    async def after(self, session_uid: UUID, cursor: Cursor) -> tuple[list[Event], Cursor, bool]:
        self.reads += 1
        return await super().after(session_uid, cursor)


async def test_r79_many_readers_of_a_session_cost_one_read_an_event(settings: Settings, seed: Begin) -> None:
    s = await seed("s1").session()
    async with s.conn.transaction():
        await s.branch(0, 1, [0], [WHOLE_BRANCH])
        await s.message("u1", None, 0)
        await s.message("a1", "u1", 1, role="assistant")
    await s.segment("a1", 0, "text", "x" * 20)
    await s.event("turn.started")
    app = create_app(settings, temporal_address=NOWHERE)
    async with served(app) as client:
        api = app.state.api
        log = CountingLog(api.database)
        app.state.api = dataclasses.replace(api, log=log, tails=Tails(log, api.feed, settings))
        there = asyncio.Semaphore(0)

        async def read() -> bytes:
            async with asked(str(client.base_url), "/api/sessions/s1/events?until=turn") as (reader, _):
                body = await reader.readuntil(b"\n\n")
                there.release()
                return body + await reader.read()

        readers = [asyncio.create_task(read()) for _ in range(READERS)]
        for _ in readers:
            await there.acquire()
        attached = log.reads
        assert attached <= READERS + 1
        for position in range(20):
            await s.delta("x", position=position, in_note=position != 7)
        await s.settle("a1", [{"segment": 0, "kind": "text", "offset": 0, "length": 20}])
        for _ in range(20):
            await s.event("tool.call", {"arguments": {}})
        await s.event("turn.completed")
        bodies = await asyncio.gather(*readers)
        assert log.reads - attached <= 25
        frames = list(frames_of(bodies[0]))
        assert ([frame.type for frame in frames].count("tool.call"), shown_text(frames)) == (20, {0: "x" * 20})
        told = [[(f.id, f.type) for f in frames_of(body) if f.type != "text.delta"] for body in bodies]
        assert all(one == told[0] for one in told)
        assert all(shown_text(list(frames_of(body))) == {0: "x" * 20} for body in bodies)


async def test_l24_cursors_inside_what_is_shared_are_exact(settings: Settings, seed: Begin) -> None:
    """Readers that come back anywhere in a stretch that others are reading, each ahead of, inside or behind what is kept."""
    s = await seed("s1").session()
    await s.event("turn.started")
    async with (
        served(create_app(settings, temporal_address=NOWHERE)) as client,
        asked(str(client.base_url), "/api/sessions/s1/events") as (first, _),
    ):
        await first.readuntil(b"\n\n")
        await s.delta("Grüße, 👋", position=0)
        await s.delta(" wörld", position=8)
        for _ in range(2):
            await first.readuntil(b"\n\n")
        for position in range(15):
            async with asked(str(client.base_url), f"/api/sessions/s1/events?after=1.{position}") as (again, _):
                if position < 14:
                    (frame,) = frames_of(await again.readuntil(b"\n\n"))
                    whole = "Grüße, 👋 wörld"
                    assert (frame.data["offset"], whole[position:].startswith(frame.data["text"])) == (position, True)
                await s.notify({"a": 1, "p": 0, "t": "t1", "g": 0, "o": 0, "k": "text", "x": "Grüße, 👋", "at": "2026-01-01T00:00:00Z"})
        await s.settle("a1", [{"segment": 0, "kind": "text", "offset": 0, "length": 14, "text": "Grüße, 👋 wörld"}])
        await s.event("turn.completed")
        (last,) = frames_of(await first.readuntil(b"\n\n"))
        assert (last.id, last.type) == ("3.0", "turn.completed")
        for after in ("1.14", "2.0"):
            async with asked(str(client.base_url), f"/api/sessions/s1/events?after={after}") as (again, _):
                (last,) = frames_of(await again.readuntil(b"\n\n"))
                assert last.id == "3.0"


async def test_r79_a_reader_that_does_not_read_is_cut_off_and_costs_nobody_anything(database_url: str, temporal_address: str) -> None:
    pieces = ["The quick brown fox. " * 1000] * 80
    scripted = script(says(*pieces, pause=0.005))
    quick = ApiSettings(send_timeout_seconds=3.0, wait_seconds=60.0)
    async with running_system(database_url, temporal_address, scripted, api=quick) as system:
        app = create_app(system.settings, temporal_address=temporal_address)
        app.dependency_overrides[identify] = callers_of(system.tenant)
        async with served(app) as client:
            turn = await system.submit("s1")
            url = f"/api/sessions/s1/events?until=turn&after=before:{turn['turn_id']}"
            async with asked(str(client.base_url), url, receive_buffer=4096) as (stuck, _):
                whole = await until_turn_ends(client, url)
                assert whole[-1].type == "turn.completed"
                assert shown_text(whole) == {0: "".join(pieces)}
                await asyncio.sleep(quick.send_timeout_seconds)
                async with asyncio.timeout(60):
                    while app.state.api.tails.attached:
                        await asyncio.sleep(0.02)
                kept = b""
                try:
                    while data := await stuck.read(65536):
                        kept += data
                except ConnectionResetError:
                    pass
            assert 0 < len(kept) < 2_000_000
            had = list(frames_of(kept))
            rest = await until_turn_ends(client, f"/api/sessions/s1/events?until=turn&after={had[-1].id}")
            assert shown_text([*had, *rest]) == {0: "".join(pieces)}
            assert [f.id for f in (*had, *rest) if f.type != "text.delta"] == [f.id for f in whole if f.type != "text.delta"]
