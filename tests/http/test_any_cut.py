"""Whatever happens to a reader's connections, what it received in all is what one that was never cut received."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from pydantic_ai.models.function import DeltaThinkingPart, DeltaToolCall
from temporalio.api.enums.v1 import EventType

from tests.http.conftest import served_beside
from tests.http.sse import Frame, opened, shown_text, told
from tests.http.wire import asked, frames_of
from tests.models import Behaviour, Piece, says, script
from tests.system import System, running_system

LONG = bool(os.environ.get("TEST_LONG"))
CUTS = 1000 if LONG else 60
TURNS = 100 if LONG else 10
DELTAS = 10_000 if LONG else 100
EVENTS = "/api/sessions/s1/events"
BUDGETS = (1, 100, 400, 1500) * 2 + (30_000,)
"""Bytes that a connection lives for; now and then enough for the largest event."""

HUGE = "𝔘" + "x" * 9000 + "👩‍👩‍👧‍👦"
"""More than a notification may carry."""


def paced(*pieces: Piece, pause: float = 0.004) -> Behaviour:
    """The pieces, one after the other."""

    async def run() -> AsyncIterator[Piece]:
        for piece in pieces:
            await asyncio.sleep(pause)
            yield piece

    return run


def long_turn() -> list[Behaviour]:
    """Thinking, text, two tools, text, a host call; after the host's result text again."""
    words = ["Grüße, ", "👋 ", "", "w", "ö", "rld\u2028 ", "\x00", "𝔘𝔫𝔦", "\ud83d", "\ude00 "]
    tools = {n: DeltaToolCall("add", f'{{"a": {n}, "b": 1}}', tool_call_id=f"t{n}") for n in (1, 2)}
    return [
        paced(*[{0: DeltaThinkingPart(content=text)} for text in ("hm 🤔", "", " let me see")], *words * 4, tools),
        paced("Between. ", HUGE, *words * 4, {1: DeltaToolCall("open_page", '{"url": "u"}', tool_call_id="h1")}),
        paced(*words * 4, "Done."),
    ]


def is_over(frames: Sequence[Frame]) -> bool:
    return [frame.type for frame in frames].count("turn.completed") == 2


async def uncut(url: str) -> list[Frame]:
    body = b""
    async with asked(url, EVENTS) as (reader, _):
        while not is_over(frames := list(frames_of(body))):
            body += await reader.readuntil(b"\n\n")
    return frames


async def cut_often(urls: Sequence[str], chance: random.Random) -> tuple[list[Frame], int]:
    """Reads a few bytes on one api, drops the connection, goes on at the next one; how often it did."""
    had: list[Frame] = []
    cuts = 0
    while not is_over(had):
        after = f"?after={had[-1].id}" if had else ""
        budget = chance.choice(BUDGETS if cuts else BUDGETS[:-1])
        async with asked(urls[cuts % len(urls)], EVENTS + after) as (reader, _):
            body = b""
            while len(body) < budget and not is_over([*had, *frames_of(body)]):
                body += await reader.read(chance.randint(1, budget))
        had += frames_of(body)
        cuts += 1
    return had, cuts


@asynccontextmanager
async def two_apis(system: System, address: str) -> AsyncIterator[list[str]]:
    """The URLs of two apis of the system, each behind a server of its own."""
    async with AsyncExitStack() as stack:
        yield [str((await stack.enter_async_context(served_beside(system, address))).base_url) for _ in range(2)]


async def test_r79_s69_a_reader_that_is_cut_anywhere_receives_what_an_uncut_one_does(database_url: str, temporal_address: str) -> None:
    seed = random.randrange(2**32) if LONG else 7
    chance = random.Random(seed)
    async with running_system(database_url, temporal_address, script(says("begin"), *long_turn())) as system:
        await system.chat("s1", id="m0")
        await system.conn.execute("delete from events; update sessions set cursor = 0")
        async with two_apis(system, temporal_address) as urls:
            recording = asyncio.create_task(uncut(urls[0]))
            live = [asyncio.create_task(cut_often(urls, chance)) for _ in range(3)]
            await system.chat("s1")
            await system.resume("s1", "h1")
            whole = told(await recording)
            cut_live = [await one for one in live]
            for frames, cuts in cut_live:
                assert (told(frames), seed) == (whole, seed)
                assert cuts > 1
            after = 0
            while after < CUTS:
                frames, cuts = await cut_often(urls, chance)
                assert (told(frames), seed) == (whole, seed)
                after += cuts
        kinds = [one[0] for one in whole if isinstance(one[0], str)]
        assert kinds.count("tool.call") == 3 and kinds.count("turn.final") == 2 and "step.restarted" not in kinds
        stored = {n: s["text"] for n, s in enumerate((await system.messages("s1"))[-1]["segments"]) if s["kind"] == "text"}
        assert HUGE in "".join(stored.values())
        assert {key[2]: text for key, _, text in (one for one in whole if not isinstance(one[0], str)) if key[0] == "text.delta"} == stored


async def test_s70_a_cut_turn_says_what_was_kept_and_a_read_shows_the_same(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(paced("Kept. ", "Also. ", *["More. "] * 4000, pause=0.02))) as system:
        turn = await system.submit("s1")
        async with served_beside(system, temporal_address) as client:
            frames: list[Frame] = []
            async with opened(client, f"{turn['events']}&until=turn") as (_, stream):
                async for frame in stream:
                    frames.append(frame)
                    if "Also" in shown_text(frames).get(0, ""):
                        await system.post("/sessions/s1/cancel")
                        break
                frames += [frame async for frame in stream]
        kept = shown_text(frames)[0]
        by_type = {frame.type: frame for frame in frames}
        assert kept.startswith("Kept. Also. ")
        assert by_type["turn.final"].own["content"] == kept
        assert by_type["turn.error"].own["error"]["type"] == "cancelled"
        assert (await system.messages("s1"))[-1]["content"] == kept


async def test_l02_l04_deltas_and_readers_leave_nothing_in_a_history(database_url: str, temporal_address: str) -> None:
    """Many deltas a turn and ten readers: one update a turn, however many there are."""
    answer = paced(*["word "] * DELTAS, pause=0.0)
    async with running_system(database_url, temporal_address, script(answer)) as system:
        await system.chat("s1")
        async with served_beside(system, temporal_address) as client:

            async def read() -> int:
                seen = 0
                async with client.stream("GET", EVENTS) as response:
                    async for line in response.aiter_lines():
                        seen += line == "event: turn.completed"
                        if seen == TURNS:
                            return seen
                return seen

            readers = [asyncio.create_task(read()) for _ in range(10)]
            for _ in range(TURNS - 1):
                await system.chat("s1")
            assert await asyncio.gather(*readers) == [TURNS] * 10
        updates = await accepted_updates(system)
        assert sum(updates) == TURNS
        assert max(updates) <= 500


async def accepted_updates(system: System) -> list[int]:
    """The updates that each run of the session's workflow accepted."""
    accepted = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED
    return [sum(event.event_type == accepted for event in run.events) for run in await system.histories("s1")]
