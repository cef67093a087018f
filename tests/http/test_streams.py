"""Streams over rows: resumed at any point they bring exactly what is missing. Temporal is not there in any of these."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from api.app import create_app
from api.server import ApiServer
from settings import ApiSettings, Settings
from tests.http.conftest import NOWHERE, served
from tests.http.seeding import WHOLE_BRANCH, Seed
from tests.http.sse import Frame, opened, shown_text, take, until_turn_ends

Begin = Callable[[str], Seed]
EVENTS = "/api/sessions/s1/events"


async def finished_turn(seed: Begin) -> Seed:
    """A turn whose step restarted once: text that was taken back, then text in two segments around a tool call."""
    s = await seed("s1").session()
    async with s.conn.transaction():
        await s.branch(0, 1, [0], [WHOLE_BRANCH])
        await s.message("u1", None, 0)
        await s.message("a1", "u1", 1, role="assistant", turn_id="t1")
    await s.segment("a1", 0, "text", "Grüße, 👋 wörld")
    await s.segment("a1", 1, "tool_group")
    await s.segment("a1", 2, "text", "So lang\u2028e line\u0085.")
    await s.turn("t1", 1, state="completed", final={})
    await s.event("turn.started", {"kind": "message", "message_id": "a1"})
    await s.settle("a1", [{"segment": 0, "kind": "text", "offset": 0, "length": 7, "text": "Grüße 👋"}])
    await s.event("step.restarted", {"segments": [{"segment": 0, "offset": 0}]})
    await s.settle("a1", [{"segment": 0, "kind": "text", "offset": 0, "length": 14}])
    await s.event("tool.call", {"call_id": "c1", "tool_name": "roll", "arguments": {}, "category": "server"})
    await s.event("tool.result", {"call_id": "c1", "output": {"n": [1, 2]}, "duration_ms": 3})
    await s.settle(
        "a1", [{"segment": 2, "kind": "text", "offset": 0, "length": 3}, {"segment": 2, "kind": "text", "offset": 3, "length": 13}]
    )
    await s.event("message.recorded", {"message": {"id": "a1"}})
    await s.event("turn.final", {"content": "x"})
    await s.event("turn.completed")
    return s


async def test_l24_a_stream_cut_behind_every_event_goes_on_with_the_next(streaming: httpx.AsyncClient, seed: Begin) -> None:
    await finished_turn(seed)
    whole = await until_turn_ends(streaming, f"{EVENTS}?until=turn")
    assert [frame.type for frame in whole] == [
        "turn.started",
        "text.delta",
        "step.restarted",
        "text.delta",
        "tool.call",
        "tool.result",
        "text.delta",
        "text.delta",
        "message.recorded",
        "turn.final",
        "turn.completed",
    ]
    assert shown_text(whole) == {0: "Grüße, 👋 wörld", 2: "So lang\u2028e line\u0085."}
    assert len({frame.id for frame in whole}) == len(whole)
    assert whole[5].own == {"call_id": "c1", "output": {"n": [1, 2]}, "duration_ms": 3}
    assert whole[0].data | {"at": ""} == {
        "type": "turn.started",
        "session_id": "s1",
        "turn_id": "t1",
        "seq": 1,
        "at": "",
        "kind": "message",
        "message_id": "a1",
    }
    assert await until_turn_ends(streaming, f"{EVENTS}?until=turn&after=0.0") == whole
    for index, frame in enumerate(whole[:-1]):
        assert await until_turn_ends(streaming, f"{EVENTS}?until=turn&after={frame.id}") == whole[index + 1 :]
        header = {"Last-Event-ID": frame.id}
        assert await until_turn_ends(streaming, f"{EVENTS}?until=turn&after=0.0", **header) == whole[index + 1 :]
    assert await until_turn_ends(streaming, f"{EVENTS}?until=turn&after=before:t1") == whole


async def test_l24_a_stream_cut_inside_a_text_goes_on_with_its_next_character(streaming: httpx.AsyncClient, seed: Begin) -> None:
    await finished_turn(seed)
    for position in range(14):
        frames = await until_turn_ends(streaming, f"{EVENTS}?until=turn&after=3.{position}")
        assert (frames[0].data["text"], frames[0].data["offset"]) == ("Grüße, 👋 wörld"[position:], position)
    for position in range(16):
        frames = await until_turn_ends(streaming, f"{EVENTS}?until=turn&after=6.{position}")
        texts = [frame.data["text"] for frame in frames if frame.type == "text.delta"]
        assert "".join(texts) == "So lang\u2028e line\u0085."[position:]
    past = await until_turn_ends(streaming, f"{EVENTS}?until=turn&after=3.14")
    assert past[0].type == "tool.call"


@pytest.mark.parametrize("in_note", [True, False])
async def test_r79_live_text_arrives_once_from_any_cursor(streaming: httpx.AsyncClient, seed: Begin, in_note: bool) -> None:
    s = await seed("s1").session()
    async with s.conn.transaction():
        await s.branch(0, 1, [0], [WHOLE_BRANCH])
        await s.message("u1", None, 0)
        await s.message("a1", "u1", 1, role="assistant")
    await s.event("turn.started")
    frames: list[Frame] = []
    async with opened(streaming, EVENTS) as (_, stream):
        frames.append(await anext(stream))
        for position, text in enumerate("Hëllo"):
            await s.delta(text, position=position, in_note=in_note)
            frames.append(await anext(stream))
            resumed = await take(streaming, f"{EVENTS}?after={frames[0].id}", 1)
            assert resumed[0].data["text"].startswith("H")
        middle = await take(streaming, f"{EVENTS}?after=1.2", 1)
        assert (middle[0].data["text"], middle[0].data["offset"], middle[0].id) == ("llo"[:1], 2, "1.3")
        await s.segment("a1", 0, "text", "Hëllo")
        await s.settle("a1", [{"segment": 0, "kind": "text", "offset": 0, "length": 5}])
        await s.event("turn.completed")
        frames.append(await anext(stream))
    assert shown_text(frames) == {0: "Hëllo"}
    assert frames[-1].type == "turn.completed"
    rest = await take(streaming, f"{EVENTS}?after=1.2", 2)
    assert [frame.type for frame in rest] == ["text.delta", "turn.completed"]
    assert rest[0].data["text"] == "llo"


async def test_a_reader_may_wait_for_a_turn_that_has_not_started(streaming: httpx.AsyncClient, seed: Begin) -> None:
    s = await seed("s1").session()
    await s.event("turn.started", turn_id="t1")
    async with opened(streaming, f"{EVENTS}?after=before:t2&until=turn") as (_, stream):
        await s.delta("of another turn", position=0)
        await s.event("turn.completed", turn_id="t1")
        await s.turn("t2", 2)
        await s.event("turn.started", turn_id="t2")
        await s.event("turn.completed", turn_id="t2")
        assert [(frame.type, frame.data["turn_id"]) async for frame in stream] == [("turn.started", "t2"), ("turn.completed", "t2")]


async def test_a_turn_that_is_repeated_streams_its_newest_attempt(streaming: httpx.AsyncClient, seed: Begin) -> None:
    s = await seed("s1").session()
    await s.turn("t1", 1, attempt=1, state="failed", final={})
    await s.event("turn.started", {"attempt": 1})
    await s.event("turn.completed")
    async with opened(streaming, f"{EVENTS}?after=before:t1@2&until=turn") as (_, stream):
        async with s.conn.transaction():
            await s.conn.execute("update turns set attempt = 2, state = 'running', final = null, ended_at = null")
            await s.event("turn.started", {"attempt": 2})
        await s.event("turn.completed")
        assert [(frame.id, frame.type) async for frame in stream] == [("3.0", "turn.started"), ("4.0", "turn.completed")]


async def test_long_streams_are_read_in_pages(streaming: httpx.AsyncClient, seed: Begin) -> None:
    s = await seed("s1").session()
    for _ in range(450):
        await s.event("tool.call", announce=False)
    frames = await take(streaming, EVENTS, 450)
    assert [frame.data["seq"] for frame in frames] == list(range(1, 451))


async def test_l3_a_turn_stream_that_is_cut_does_not_end_cleanly(settings: Settings, seed: Begin) -> None:
    s = await seed("s1").session()
    await s.event("turn.started")
    server = ApiServer(create_app(settings, temporal_address=NOWHERE))
    task = asyncio.create_task(server.run())
    while not server.started:
        await asyncio.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    async with (
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
        opened(client, f"{EVENTS}?until=turn") as (_, stream),
    ):
        assert (await anext(stream)).type == "turn.started"
        server.stop()
        with pytest.raises(httpx.RemoteProtocolError):
            await anext(stream)
    async with asyncio.timeout(60):
        await task


async def test_an_idle_stream_carries_comments(settings: Settings, seed: Begin) -> None:
    await seed("s1").session()
    quick = settings.model_copy(update={"api": ApiSettings(sse_keepalive_seconds=0.05)})
    async with served(create_app(quick, temporal_address=NOWHERE)) as client, client.stream("GET", EVENTS) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        assert response.headers["cache-control"] == "no-store"
        lines = response.aiter_lines()
        assert [await anext(lines) for _ in range(4)] == [": keepalive", "", ": keepalive", ""]


async def test_a_stream_ends_when_its_session_is_gone(settings: Settings, seed: Begin) -> None:
    s = await seed("s1").session()
    await s.event("turn.started")
    async with served(create_app(settings, temporal_address=NOWHERE)) as client, opened(client, EVENTS) as (_, stream):
        await anext(stream)
        await s.conn.execute("delete from sessions")
        await s.notify({"e": 99})
        assert [frame async for frame in stream] == []
