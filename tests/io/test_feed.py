"""Notifications: effective at once, complete across lost connections, bounded for slow readers."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import asyncpg
import pytest

from activities.db.feed import READER_LIMIT, Committed, Feed, Reread, Streamed, Subscription
from activities.db.pool import Database
from cli.services.postgres import PostgresServer
from settings import DatabaseSettings
from tests.services import PATIENCE_SECONDS
from workflows.contracts.errors import ServiceUnavailable


@pytest.fixture
async def feed(migrated: DatabaseSettings) -> AsyncIterator[Feed]:
    feed = await Feed.open(migrated)
    yield feed
    await feed.close()
    assert health(feed) == "closed"


def health(feed: Feed) -> str:
    return feed.health


async def until(feed: Feed, state: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while health(feed) != state:
            await asyncio.sleep(0.01)


async def notify(database: Database, **note: object) -> None:
    async with database.connection() as connection:
        await connection.execute("select pg_notify('outlast', $1)", json.dumps(note))


async def commits(subscription: Subscription, last: int) -> list[int]:
    """The numbers that arrive until `last` does."""
    found: list[int] = []
    while last not in found:
        note = await subscription.next(PATIENCE_SECONDS)
        assert note is not None, f"{last} never came, only {found}"
        if isinstance(note, Committed):
            found.append(note.seq)
    return found


async def test_notes_reach_the_readers_of_their_session(feed: Feed, database: Database) -> None:
    async with feed.subscribe("a") as one, feed.subscribe("a") as two, feed.subscribe("b") as other:
        await notify(database, s="a", e=7)
        await notify(database, s="a", a=7, p=3, t="turn", g=0, o=3, k="text", x="lo", at="2026-01-01T00:00:00Z")
        await notify(database, s="a", a=7, p=5, t="turn", g=0, o=5, k="text", at="2026-01-01T00:00:01Z")
        for reader in (one, two):
            assert await commits(reader, 7) == [7]
            assert await reader.next(PATIENCE_SECONDS) == Streamed(7, 3, "turn", 0, 3, "text", "lo", "2026-01-01T00:00:00Z")
            assert await reader.next(PATIENCE_SECONDS) == Streamed(7, 5, "turn", 0, 5, "text", None, "2026-01-01T00:00:01Z")
        await notify(database, s="b", e=1)
        assert await commits(other, 1) == [1]
        assert await one.next(0.05) is None


async def test_a_subscription_is_effective_at_once(migrated: DatabaseSettings, database: Database) -> None:
    for number in range(1, 11):
        feed = await Feed.open(migrated)
        async with feed.subscribe("s") as subscription:
            await notify(database, s="s", e=number)
            assert await commits(subscription, number) == [number]
        await feed.close()


async def test_foreign_notifications_are_dropped(feed: Feed, database: Database) -> None:
    async with feed.subscribe("s") as subscription:
        async with database.connection() as connection:
            for payload in ("", "[]", "7", "{}", '{"s": "s"}', '{"s": ["s"]}'):
                await connection.execute("select pg_notify('outlast', $1)", payload)
        await notify(database, s="s", e=1)
        assert await commits(subscription, 1) == [1]


async def test_a_commit_says_whether_a_turn_ended_with_it(feed: Feed, database: Database) -> None:
    """One that does not say, as those of an older worker, may be an end."""
    async with feed.subscribe("s") as subscription:
        await notify(database, s="s", e=1)
        assert await commits(subscription, 1) == [1]
        for said in ({"f": 0}, {"f": 1}, {}):
            await notify(database, s="s", e=1, **said)
        assert [await subscription.next(PATIENCE_SECONDS) for _ in range(3)] == [Committed(1, ends=False), Committed(1), Committed(1)]


async def test_a_slow_reader_is_told_to_read_again() -> None:
    subscription = Subscription("s")
    for seq in range(READER_LIMIT + 1):
        subscription.put(Committed(seq))
    subscription.put(Committed(9999))
    assert await subscription.next() == Reread()
    assert await subscription.next() == Committed(9999)
    assert await subscription.next(0) is None


END_LISTENERS = """
    select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and (query ilike '%listen%' or query = 'select 1') and pid <> pg_backend_pid()
"""
"""Only the owner may see and end another role's connections."""


async def commit_event(database: Database, uid: UUID, seq: int) -> None:
    """An event, announced as its transaction commits."""
    async with database.transaction() as connection:
        await connection.execute("insert into events (session_uid, seq, type, data, at) values ($1, $2, 'x', '{}', now())", uid, seq)
        await connection.execute("select pg_notify('outlast', $1)", json.dumps({"s": str(uid), "e": seq}))


async def test_cut_connections_lose_no_event(feed: Feed, database: Database, migrated: DatabaseSettings) -> None:
    """A writer commits rows; the reader sees every one of them, although its connection is cut again and again."""
    total, uid = 300, uuid4()
    owner = await asyncpg.connect(migrated.url)
    async with database.connection() as connection:
        await connection.execute(
            "insert into sessions (session_uid, tenant, session_id, profile, created_at, updated_at) values ($1, 't', 's', 'p', now(), now())",
            uid,
        )

    async def write() -> None:
        for seq in range(1, total + 1):
            await commit_event(database, uid, seq)
            await asyncio.sleep(0.002)
            if seq % 100 == 50:
                await cut()

    seen, rereads = list[int](), 0

    async def cut() -> None:
        """Ends connections until the reader was told of it: what is just being made is not known by its last statement."""
        before = rereads
        while rereads == before:
            await owner.execute(END_LISTENERS)
            await asyncio.sleep(0.02)

    async with feed.subscribe(str(uid)) as subscription, asyncio.timeout(2 * PATIENCE_SECONDS):
        writer = asyncio.create_task(write())
        while len(seen) < total:
            note = await subscription.next(PATIENCE_SECONDS)
            assert note is not None
            rereads += isinstance(note, Reread)
            async with database.connection() as connection:
                rows = await connection.fetch(
                    "select seq from events where session_uid = $1 and seq > $2 order by seq", uid, seen[-1] if seen else 0
                )
            seen += [row["seq"] for row in rows]
        await writer
    assert (seen, rereads >= 3) == (list(range(1, total + 1)), True)
    await owner.close()


async def test_r15_a_feed_started_before_postgres(bare_postgres: PostgresServer) -> None:
    await asyncio.to_thread(bare_postgres.stop)
    settings = DatabaseSettings(url=bare_postgres.url("postgres"), timeout_seconds=1)
    feed = await Feed.open(settings)
    with pytest.raises(ServiceUnavailable):
        async with feed.subscribe("s"):
            pytest.fail("nothing is listened to")
    assert health(feed) == "reconnecting"
    bare_postgres.start()
    await until(feed, "listening")
    database = await Database.open(settings)
    async with feed.subscribe("s") as subscription:
        assert health(feed) == "listening"
        await notify(database, s="s", e=1)
        assert await commits(subscription, 1) == [1]
        await asyncio.to_thread(bare_postgres.stop)
        await until(feed, "reconnecting")
        bare_postgres.start()
        assert await subscription.next(PATIENCE_SECONDS) == Reread()
        await notify(database, s="s", e=2)
        assert await commits(subscription, 2) == [2]
    await feed.close()
    await database.close()


async def test_r16_a_server_that_hangs_is_noticed(bare_postgres: PostgresServer) -> None:
    settings = DatabaseSettings(url=bare_postgres.url("postgres"), timeout_seconds=1)
    feed = await Feed.open(settings)
    await until(feed, "listening")
    async with feed.subscribe("s") as subscription:
        assert await subscription.next(0.1) in (None, Reread())
        bare_postgres.signal(signal.SIGSTOP)
        await until(feed, "reconnecting")
        bare_postgres.signal(signal.SIGCONT)
        assert await subscription.next(PATIENCE_SECONDS) == Reread()
        await until(feed, "listening")
    await feed.close()
