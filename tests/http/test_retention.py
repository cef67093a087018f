"""Events that were removed because they were old, and readers who come from before."""

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx

from activities.db.pool import Database
from activities.retention import EventRetention
from settings import EventSettings, Settings
from tests.architecture.sources import ROOT
from tests.http.seeding import Seed
from tests.http.sse import opened, take, until_turn_ends
from tests.http.wire import asked
from tests.models import says, script, waits
from tests.system import running_system

Begin = Callable[[str], Seed]
EVENTS = "/api/sessions/s1/events"
HOUR = timedelta(hours=1)


async def age(s: Seed, *hours: float) -> None:
    """Makes the first events so many hours old, the others new."""
    now = datetime.now(UTC)
    await s.conn.execute("update events set at = $1", now)
    for seq, old in enumerate(hours, 1):
        await s.conn.execute("update events set at = $1 where seq = $2", now - old * HOUR, seq)


async def turn(s: Seed, turn_id: str, number: int, *, over: bool = True) -> None:
    await s.turn(turn_id, number, state="completed" if over else "running", final={} if over else None, message_id=f"a{number}")
    for kind in ("turn.started", "tool.call", *(("turn.final", "turn.completed") if over else ())):
        await s.event(kind, turn_id=turn_id)
    await s.conn.execute("update sessions set cursor = $1", s.seq)


async def left(s: Seed) -> list[int]:
    return [row["seq"] for row in await s.conn.fetch("select seq from events order by seq")]


async def test_r79_old_events_go_as_whole_turns_and_never_those_of_a_live_one(settings: Settings, seed: Begin) -> None:
    s = await seed("s1").session()
    database = await Database.open(settings.database)
    retention = EventRetention(database, 1.0)
    assert await retention.sweep() == 0
    await turn(s, "t1", 1)
    await turn(s, "t2", 2)
    await s.event("input.refused", turn_id=None)
    await turn(s, "t3", 3, over=False)
    cases: list[tuple[tuple[float, ...], int]] = [
        ((0.9,) * 4, 0),
        ((2, 2, 2, 0), 0),  # the first turn ended a moment ago
        ((2,) * 6, 4),  # the second one was under way an hour ago
        ((2,) * 8, 8),
        ((2,) * 11, 9),  # the third one is live
    ]
    for hours, gone in cases:
        await age(s, *hours)
        await retention.sweep()
        assert (await left(s), hours) == (list(range(gone + 1, 12)), hours)
        assert await s.conn.fetchval("select events_from from sessions") == gone
    for kind in ("turn.final", "turn.completed"):
        await s.event(kind, turn_id="t3")
    await s.conn.execute("update turns set state = 'completed', final = '{}', ended_at = now() where turn_id = 't3'")
    await age(s, *(2,) * 13)
    assert await retention.sweep() == 4
    assert (await left(s), await s.conn.fetchval("select events_from from sessions")) == ([], 13)
    assert await retention.sweep() == 0
    await database.close()


async def problem(client: httpx.AsyncClient, url: str, **headers: str) -> dict[str, Any]:
    answer = await client.get(url, headers=headers)
    assert answer.status_code == 410, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    found: dict[str, Any] = answer.json()
    return found


async def test_l24_a_cursor_from_before_the_oldest_event_is_told_where_to_begin(
    settings: Settings, streaming: httpx.AsyncClient, seed: Begin
) -> None:
    s = await seed("s1").session()
    await turn(s, "t1", 1)
    await turn(s, "t2", 2)
    await age(s, *(2,) * 4)
    database = await Database.open(settings.database)
    assert await EventRetention(database, 1.0).sweep() == 4
    for url in (f"{EVENTS}?after=0", f"{EVENTS}?after=0.0&until=turn", f"{EVENTS}?after=3.0", f"{EVENTS}?after=3.7"):
        found = await problem(streaming, url)
        assert (found["code"], found["after"]) == ("cursor_expired", "4.0")
    assert (await problem(streaming, f"{EVENTS}?after=before:t1"))["after"] == "4.0"
    # What an EventSource sends when it reconnects by itself goes before what its URL says.
    assert (await problem(streaming, f"{EVENTS}?after=4.0", **{"Last-Event-ID": "2.0"}))["after"] == "4.0"
    for url in (EVENTS, f"{EVENTS}?after=4.0", f"{EVENTS}?after=4.9", f"{EVENTS}?after=before:t2"):
        assert [frame.id for frame in await take(streaming, url, 4)] == ["5.0", "6.0", "7.0", "8.0"]
    await age(s, *(2,) * 8)
    assert await EventRetention(database, 1.0).sweep() == 4
    await database.close()
    assert (await problem(streaming, f"{EVENTS}?after=7.0"))["after"] == "8.0"
    async with opened(streaming, EVENTS) as (_, fresh), opened(streaming, f"{EVENTS}?after=8.0") as (_, resumed):
        await turn(s, "t3", 3)
        assert [(await anext(stream)).id for stream in (fresh, resumed)] == ["9.0", "9.0"]


async def test_s69_the_client_of_the_page_reads_on_behind_what_is_gone(
    settings: Settings, streaming: httpx.AsyncClient, seed: Begin
) -> None:
    s = await seed("s1").session()
    await turn(s, "t1", 1)
    await age(s, *(2,) * 4)
    database = await Database.open(settings.database)
    assert await EventRetention(database, 1.0).sweep() == 4
    await database.close()
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "streams.md").read_text(), re.DOTALL)
    page: dict[str, Any] = {}
    exec(code, page)

    def read() -> tuple[list[str], dict[int, str]]:
        kinds, texts = [], dict[int, str]()
        for kind, data in page["events"](f"{streaming.base_url}{EVENTS}", "1.0"):
            kinds.append(kind)
            page["apply"](texts, kind, data)
            if kind == "turn.completed":
                return kinds, texts
        raise AssertionError("it ended")

    reading = asyncio.create_task(asyncio.to_thread(read))
    await s.event("turn.started", turn_id="t2")
    await s.delta("Helo", position=0)
    await s.settle("a1", [{"segment": 0, "kind": "text", "offset": 0, "length": 4, "text": "Helo"}])
    await s.event("step.restarted", {"segments": [{"segment": 0, "offset": 0}]}, turn_id="t2")
    await s.settle("a1", [{"segment": 0, "kind": "text", "offset": 0, "length": 5, "text": "Hello"}])
    await s.event("turn.completed", turn_id="t2")
    kinds, texts = await reading
    assert (kinds[:2], kinds[-3:], texts) == (["gap", "turn.started"], ["step.restarted", "text.delta", "turn.completed"], {0: "Hello"})


async def test_l03_a_reader_that_falls_behind_the_oldest_event_is_cut_off(
    settings: Settings, streaming: httpx.AsyncClient, seed: Begin
) -> None:
    """It stopped reading for so long that what it missed is gone. Its stream doesn't go on behind the gap, and doesn't end as if whole."""
    s = await seed("s1").session()
    await s.event("turn.started")
    big = {"output": "x" * 200_000}
    async with asked(str(streaming.base_url), f"{EVENTS}?until=turn", receive_buffer=4096) as (stuck, _):
        await stuck.readuntil(b"\n\n")
        for _ in range(12):
            await s.event("tool.result", big)
        await s.event("turn.completed")
        await s.turn("t1", 1, state="completed", final={})
        await s.conn.execute("update sessions set cursor = $1", s.seq)
        await age(s, *(2,) * s.seq)
        database = await Database.open(settings.database)
        assert await EventRetention(database, 1.0).sweep() == 14
        await database.close()
        await turn(s, "t2", 2)
        kept = await stuck.read(-1)
        assert b"turn.completed" not in kept and kept.count(b"event: tool.result") < 12
    assert (await problem(streaming, f"{EVENTS}?after=1.0"))["after"] == "14.0"


async def test_r79_workers_remove_events_while_turns_run(database_url: str, temporal_address: str) -> None:
    go_on = asyncio.Event()
    scripted = script(says("hello"), says("hello"), waits(go_on, "long", " turn"))
    events = EventSettings(retention_hours=1.5 / 3600)
    async with running_system(database_url, temporal_address, scripted, events=events) as system:
        first = await system.chat("s1")
        await system.chat("s1")

        async def removed() -> bool:
            return bool(await system.conn.fetchval("select count(*) = 0 from events"))

        await system.until(removed)
        live = await system.submit("s1")
        await system.streaming()
        await system.until(lambda: system.conn.fetchval("select true from events where at < now() - interval '1.5 s'"))
        assert await EventRetention(system.kit.db, events.retention_hours).sweep() == 0
        answer = await system.http.get("/api/sessions/s1/events", params={"after": f"before:{first['turn_id']}"})
        assert (answer.status_code, answer.json()["code"]) == (410, "cursor_expired")
        watching = asyncio.create_task(until_turn_ends(system.http, f"{live['events']}&until=turn"))
        await system.until(lambda: system.http._transport.app.state.api.tails.attached)  # type: ignore[attr-defined]
        go_on.set()
        frames = await watching
        assert [frame.type for frame in frames][:2] == ["turn.started", "message.recorded"]
        assert frames[-1].type == "turn.completed"
        assert len(await system.messages("s1")) == 6
