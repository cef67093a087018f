"""The measures of a run. Subjects take turns one after the other, with a pause between, so that a slow minute of the machine slows all of them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

import aiohttp
from temporalio.client import Client

from benchmarks.calling import WITH_TOOL
from benchmarks.cancelled import cancelled
from benchmarks.figures import Figure
from benchmarks.history import TurnCost, all_events, by_turn, plain
from benchmarks.instant import in_pieces
from benchmarks.killed_worker import killed_worker
from benchmarks.stack import Outlast, Part, Stack
from benchmarks.text import ANSWER_CHARACTERS
from benchmarks.turns import MESSAGE_CHARACTERS, Floor, Peer, Session, http_client

Took = TypeVar("Took")
WARM_TURNS = 5
IDLE_SECONDS = 0.5
PAUSE_SECONDS = 0.03
"""What a subject does after it answered (ours writes search attributes) must not slow the next one's turn."""

CONTENT_BYTES = MESSAGE_CHARACTERS + ANSWER_CHARACTERS
HISTORY_LIMIT = 4 * 1024 + 3 * CONTENT_BYTES
EVENTS_LIMIT = 12


@dataclass(frozen=True)
class Size:
    """How much is measured. `early` is the number of a session's first turns that count as early; as many are late."""

    sessions: int = 10
    early: int = 20
    long_turns: int = 1000
    peer_turns: int = 250
    cold_starts: int = 5
    kills: int = 5
    cancels: int = 20


TOY = Size(sessions=1, early=2, long_turns=6, peer_turns=6, cold_starts=1, kills=1, cancels=1)


@dataclass
class Bench:
    """The subjects of a run, all on one Temporal server and one Postgres, and what was measured so far."""

    stack: Stack
    size: Size
    http: aiohttp.ClientSession
    client: Client
    floor_worker: Part
    cached: Outlast
    uncached: Outlast
    floor: Floor
    figures: list[Figure] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    long: Session | None = None

    @property
    def toy(self) -> bool:
        """True if each measure is taken once, at the least size."""
        return self.size is TOY

    def note(
        self, name: str, unit: str, samples: Sequence[float], over: Figure | None = None, *, reach: float | None = None, note: str = ""
    ) -> Figure:
        """Adds a measure."""
        figure = Figure(name, unit, samples, over, reach, note)
        self.figures.append(figure)
        return figure

    def session(self, of: Outlast | None = None) -> Session:
        """A new session of ours."""
        return Session((of or self.cached).url, self.http)

    async def deploy(self) -> None:
        """Another worker of ours takes the place of the one that ran until now."""
        self.cached.worker = await self.fresh(self.cached.worker)

    async def fresh(self, worker: Part) -> Part:
        """A worker stops in order, when nothing is left to do for it, and another one takes its place."""
        await asyncio.sleep(IDLE_SECONDS)
        await asyncio.to_thread(worker.stop)
        fresh = self.stack.again(worker)
        await asyncio.to_thread(fresh.wait)
        return fresh


@asynccontextmanager
async def subjects(stack: Stack, size: Size) -> AsyncIterator[Bench]:
    """Starts the subjects and warms them: each has had turns that are not measured."""
    address = stack.temporal.address
    floor_worker = stack.start("floor", "benchmarks.others_worker", "floor", address)
    peer_worker = stack.start("peer", "benchmarks.others_worker", "peer", address)
    cached, uncached = stack.outlast("bench", env=WITH_TOOL), stack.outlast("bench-uncached", "--uncached")
    for part in (floor_worker, peer_worker, cached.api, uncached.api):
        await asyncio.to_thread(part.wait)
    client = await Client.connect(address)
    async with http_client() as http:
        bench = Bench(stack, size, http, client, floor_worker, cached, uncached, Floor(client))
        peer = await Peer.begin(address)
        warm = [bench.session(cached), bench.session(uncached)]
        for _ in range(WARM_TURNS):
            for session in warm:
                await session.turn()
                await session.streamed_turn()
            await bench.floor.turn()
            await peer.turn()
        yield bench


async def short_sessions(bench: Bench) -> None:
    """P1: the first turns of sessions, each beside the floor's update and the peer's turn."""
    floors: list[float] = []
    streams: list[float] = []
    answers: list[float] = []
    peers: list[float] = []
    for _ in range(bench.size.sessions):
        streamed, answered = bench.session(), bench.session()
        peer = await Peer.begin(bench.stack.temporal.address)
        for _ in range(bench.size.early):
            floors.append(await paused(bench.floor.turn()))
            streams.append(await paused(streamed.streamed_turn()))
            answers.append(await paused(answered.turn()))
            if (took := await paused(peer.turn())) is not None:
                peers.append(took)
    floor = bench.note("floor: one update, one empty activity", "ms", floors)
    bench.note("P1 turn, request to `turn.completed` over SSE, turns 1–20", "ms", streams, floor, reach=1.0)
    bench.note("P1 turn, request to the answer of POST /api/chat, turns 1–20", "ms", answers, floor, reach=1.0)
    bench.note("peer (a): its turn without HTTP, turns 1–20", "ms", peers, floor)


async def back_to_back(bench: Bench) -> None:
    """The same without pauses: what a subject does after its answer counts too."""
    count = bench.size.early * 2
    session = bench.session()
    floors = [await bench.floor.turn() for _ in range(count)]
    turns = [await session.turn() for _ in range(count)]
    floor = bench.note("floor, without pauses", "ms", floors)
    bench.note("turn over POST /api/chat, without pauses", "ms", turns, floor)


@dataclass
class _Long:
    """A long conversation of ours and the times of its turns."""

    session: Session
    times: list[float] = field(default_factory=list)
    floors: list[float] = field(default_factory=list)


async def long_sessions(bench: Bench) -> None:
    """P2 and P3: two conversations of a thousand turns, with and without the prepared prefix, and the peer's while it lives."""
    size = bench.size
    cached, uncached = _Long(bench.session()), _Long(bench.session(bench.uncached))
    peer = await Peer.begin(bench.stack.temporal.address)
    peers: list[float] = []
    for number in range(1, size.long_turns + 1):
        for long in (cached, uncached):
            if number <= size.early or number > size.long_turns - size.early:
                long.floors.append(await paused(bench.floor.turn()))
            long.times.append(await paused(long.session.turn()))
        if number <= size.peer_turns and (took := await paused(peer.turn())) is not None:
            peers.append(took)
    _flatness(bench, cached, "the prepared prefix cached", reach=1.15)
    _flatness(bench, uncached, "without the cache")
    await _history(bench, cached.session)
    await _peer_history(bench, peer, peers)
    bench.long = cached.session


def _flatness(bench: Bench, long: _Long, how: str, reach: float | None = None) -> None:
    """Turns in units of the floor's update beside them: a run is long enough for the machine to change its pace."""
    early, last = bench.size.early, bench.size.long_turns
    note = f"{median(long.times[:early]):.1f} and {median(long.times[-early:]):.1f} ms"
    in_floors = [time / floor for time, floor in zip(long.times[:early] + long.times[-early:], long.floors, strict=True)]
    first = bench.note(f"turns 1–{early}, {how}", "floors", in_floors[:early])
    bench.note(f"P2 turns {last - early + 1}–{last}, {how}", "floors", in_floors[early:], first, reach=reach, note=note)


async def _history(bench: Bench, session: Session) -> None:
    await asyncio.sleep(IDLE_SECONDS)
    turns = by_turn(await all_events(bench.client, session.workflow_id))
    if len(turns) != bench.size.long_turns:
        raise RuntimeError(f"the history shows {len(turns)} turns of {bench.size.long_turns}")
    around = min(10, bench.size.early)
    early = plain(turns[around : 2 * around] or turns[1:])
    late = plain(turns[-around:])
    bench.note(f"P3 history at turn {around}", "bytes", [cost.size for cost in early], reach=HISTORY_LIMIT)
    bench.note(f"P3 history at turn {len(turns)}", "bytes", [cost.size for cost in late], reach=HISTORY_LIMIT)
    bench.note(f"P3 events at turn {len(turns)}", "events", [cost.events for cost in late], reach=EVENTS_LIMIT)
    rolls = sum(turn.rolled for turn in turns[1:])
    mean = sum(turn.size for turn in turns) / len(turns)
    bench.note(f"P3 history, mean of {len(turns)} turns in {rolls + 1} runs", "bytes", [mean], reach=HISTORY_LIMIT)
    bench.words.append(f"Bytes by event of the last turn: {_listed(late[-1])}.")


def _listed(turn: TurnCost) -> str:
    return ", ".join(f"{name.lower()} {size}" for name, size in sorted(turn.by_type.items(), key=lambda item: -item[1]))


async def _peer_history(bench: Bench, peer: Peer, times: list[float]) -> None:
    early = min(bench.size.early, len(times) // 2)
    first = bench.note(f"peer (a) turns 1–{early}", "ms", times[:early])
    bench.note(f"peer (a) turns {len(times) - early + 1}–{len(times)}", "ms", times[-early:], first)
    costs = by_turn(await all_events(bench.client, peer.handle.id, peer.first_run))[: len(times)]
    bench.note(f"peer (a) history at turn {len(costs)}", "bytes", [cost.size for cost in costs[-min(10, early) :]])
    total = sum(cost.size for cost in costs)
    end = f"and then took no more: {peer.broken}" if peer.broken else "and still lives"
    bench.words.append(f"Peer (a) finished {len(times)} turns with {total:,} bytes of history, {end}.")


async def pieces(bench: Bench) -> None:
    """P3: a turn streamed in a hundred pieces leaves as many events as one streamed in one piece."""
    session = bench.session()
    for number in (1, 1, 100):
        await session.streamed_turn(in_pieces(number, str(session.turns)))
        await asyncio.sleep(IDLE_SECONDS)  # a turn's history is whole a little after its answer
    handle = bench.client.get_workflow_handle(session.workflow_id)
    turns = by_turn(list((await handle.fetch_history()).events))
    one = bench.note("events of a turn streamed in 1 piece", "events", [turns[1].events])
    bench.note("P3 events of a turn streamed in 100 pieces", "events", [turns[2].events], one, reach=1.0)


async def cold(bench: Bench) -> None:
    """P5: the first turn of a session on a fresh worker, at turn 1,000 and at turn 10."""
    long, short = bench.long or bench.session(), bench.session()
    while long.turns < bench.size.long_turns:
        await long.turn()
    for _ in range(10):
        await short.turn()
    longs: list[float] = []
    shorts: list[float] = []
    floors: list[float] = []
    for _ in range(bench.size.cold_starts):
        for session, times in ((short, shorts), (long, longs)):
            await bench.deploy()
            times.append(await paused(session.turn()))
        bench.floor_worker = await bench.fresh(bench.floor_worker)
        floors.append(await paused(bench.floor.turn()))
    floor = bench.note("floor, first update on a fresh worker", "ms", floors)
    at_short = bench.note("turn 10 on a fresh worker", "ms", shorts, floor, reach=1.3)
    bench.note("P5 turn 1,000 on a fresh worker", "ms", longs, at_short, reach=1.5)


async def killed(bench: Bench) -> None:
    """P12."""
    kills = await killed_worker(bench.stack, bench.size.kills)
    bench.note("P12 worker killed in mid-request: turn complete, model's own time excluded", "s", [one.seconds for one in kills], reach=15)
    bench.note("P12 requests for that step", "requests", [float(one.requests) for one in kills], reach=2)


async def stopped(bench: Bench) -> None:
    """P13."""
    cancels = await cancelled(bench.stack, bench.size.cancels)
    bench.note("P13 cancel: connection closed and partial text stored", "s", [one.both for one in cancels], reach=1)


async def paused(turn: Awaitable[Took]) -> Took:
    """A turn, and then a pause."""
    took = await turn
    await asyncio.sleep(PAUSE_SECONDS)
    return took
