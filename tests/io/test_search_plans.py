"""What a search touches: the caller's own sessions, whatever others have said."""

import asyncpg

from benchmarks.conversations import write_conversation
from tests.io.plans import touched


async def test_s16_a_search_goes_by_the_index_and_costs_nothing_for_what_others_said(conn: asyncpg.Connection) -> None:
    await write_conversation(conn, "mine", 100, owner="alice")
    await write_conversation(conn, "other", 3_000, owner="bob")
    await conn.execute("analyze")
    nothing = {"before_at": None, "before_uid": None, "before_id": None, "expires": False, "held": False}
    for words, hits in (("words", 100), ("77", 1), ("brief", 2), ("nowhere", 0)):
        for part in await touched(conn, "search_messages", tenant="default", owner="alice", words=words, count=500, **nothing):
            assert {"messages_by_words", "steering_by_words"} <= part.indexes, part
            assert not part.scans, part
            # A node for the index, the table, both texts, the sort and the snippets.
            assert part.rows <= 12 * hits + 60, (words, part)
