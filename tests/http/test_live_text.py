"""Live text whose writers get in each other's way, or don't learn whether they wrote."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from urllib.parse import urlsplit

import httpx
import pytest
from pydantic_ai.models.function import DeltaToolCall

from activities.db.pool import Database
from activities.db.session_tx import moment, now_text, session_tx
from activities.live_text import LiveText
from activities.step_run import StepRun
from settings import DatabaseSettings
from tests.http.late_steps import late_step, session_of
from tests.http.seeding import WHOLE_BRANCH, Seed
from tests.http.sse import Frame, opened, shown_text
from tests.models import Behaviour, Piece, says, script
from tests.system import running_system
from workflows.contracts.errors import ServiceUnavailable
from workflows.model.session import SessionRef

Begin = Callable[[str], Seed]


class Driven:
    """A model that says what the test tells it to, when it does."""

    def __init__(self) -> None:
        self._pieces: asyncio.Queue[Piece | None] = asyncio.Queue()

    def say(self, *pieces: Piece) -> None:
        for piece in pieces:
            self._pieces.put_nowait(piece)

    def end(self) -> None:
        self._pieces.put_nowait(None)

    def behaviour(self) -> Behaviour:
        async def run() -> AsyncIterator[Piece]:
            while (piece := await self._pieces.get()) is not None:
                yield piece

        return run


async def test_r33_l24_runs_of_one_step_never_mix_their_text(database_url: str, temporal_address: str) -> None:
    """The older one has lost its lock and lives on. Its text, its calls and its end count for nothing once the newer one has begun."""
    old, new = Driven(), Driven()
    scripted = script(says("hello"), old.behaviour(), new.behaviour())
    async with running_system(database_url, temporal_address, scripted) as system:
        step = late_step(*await session_of(system))

        async def live(ends: str) -> bool:
            text = await system.conn.fetchval("select string_agg(text, '' order by after_seq, position) from live_deltas")
            return bool(text) and text.endswith(ends)

        old.say("OLD ")
        first = asyncio.create_task(StepRun(system.kit, step).run())
        await system.until(lambda: live("OLD "))
        new.say("new ")
        second = asyncio.create_task(StepRun(system.kit, step).run())
        await system.until(lambda: live("new "))
        for number in range(5):
            old.say("MORE ", {1: DeltaToolCall("add", "{}", tool_call_id="c1")}, "BEHIND IT ")
            new.say(f"{number} ")
            await system.until(lambda: live(f"{number} "))  # noqa: B023
        old.end()
        assert (await first).state == "stale"
        new.end()
        assert (await second).state == "answered"
        text = "new 0 1 2 3 4 "
        assert (await system.messages("s1"))[-1]["content"] == text
        kinds = [event["type"] for event in await system.events("s1") if event["turn_id"] == "late"]
        assert ("tool.call" in kinds, kinds.count("step.restarted"), kinds.count("turn.completed")) == (False, 1, 1)
        answer = await system.http.get("/api/sessions/s1/events", params={"after": "before:late", "until": "turn"})
        assert "OLD" in answer.text and "MORE" not in answer.text and "BEHIND" not in answer.text


@asynccontextmanager
async def forgetful(url: str) -> AsyncIterator[tuple[DatabaseSettings, asyncio.Event]]:
    """A way to Postgres on which, once the event is set, everything is sent and no answer comes back: the connection is cut instead."""
    place = urlsplit(url)
    folder = httpx.URL(url).params["host"] if not place.hostname else ""
    forget = asyncio.Event()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool) -> None:
        with closing(writer), suppress(OSError):
            while data := await reader.read(65536):
                if answers and forget.is_set():
                    return
                writer.write(data)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up, down = await asyncio.open_unix_connection(f"{folder}/.s.PGSQL.5432")
        await asyncio.gather(carry(reader, down, answers=False), carry(up, writer, answers=True))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        yield DatabaseSettings(url=f"postgresql://{place.username}@127.0.0.1:{port}{place.path}?sslmode=disable"), forget


async def test_r79_text_whose_write_was_not_answered_is_told_once(streaming: httpx.AsyncClient, seed: Begin, database_url: str) -> None:
    """Also where something else was recorded before its writer came back."""
    s = await seed("s1").session()
    async with s.conn.transaction():
        await s.branch(0, 1, [0], [WHOLE_BRANCH])
        await s.message("u1", None, 0)
        await s.message("a1", "u1", 1, role="assistant", turn_id="t1")
    await s.turn("t1", 1)
    started = await s.event("turn.started")
    await s.conn.execute("update sessions set cursor = $1", started)
    ref = SessionRef(tenant="default", session_id="s1", session_uid=str(s.uid))
    other = await Database.open(DatabaseSettings(url=database_url))
    async with forgetful(database_url) as (way, forget):
        database = await Database.open(way)
        live = LiveText(database, str(s.uid), "t1", 1, 1, 0, started)
        for answered, lost, between in (("one ", "two ", True), ("three ", "four ", False)):
            await live.piece(0, "text", answered)
            await live.flush()
            forget.set()
            await live.piece(0, "text", lost)
            with pytest.raises(ServiceUnavailable):
                await live.flush()
            forget.clear()
            assert [piece.text for piece in live.unsent()] == [lost]
            assert await s.conn.fetchval("select true from live_deltas where text = $1", lost)
            if between:
                async with session_tx(other, ref) as tx:
                    await tx.announce("input.refused", None, moment(now_text()), {})
        await live.piece(0, "text", "five.")
        await live.flush()
        await database.close()
    await other.close()
    frames: list[Frame] = []
    async with opened(streaming, "/api/sessions/s1/events") as (_, stream):
        while len(shown_text(frames).get(0, "")) < len("one two three four five."):
            frames.append(await anext(stream))
    assert shown_text(frames) == {0: "one two three four five."}
