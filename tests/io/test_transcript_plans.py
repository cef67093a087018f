"""What reads of a transcript touch, whatever the length of the session."""

from uuid import UUID

import asyncpg
import pytest

from benchmarks.conversations import write_conversation
from tests.io.plans import touched

SHORT, LONG = 100, 10_000
PER_BRANCH = 20
MORE_BRANCHES = 7
"""Doublings from the 5 branches of the short path to the 500 of the long one."""


async def made(conn: asyncpg.Connection, *, per_branch: int = 0) -> dict[int, UUID]:
    """A short and a long session, in a database that knows how large its tables are."""
    sessions = {length: await write_conversation(conn, f"s{length}", length, per_branch=per_branch) for length in (SHORT, LONG)}
    await conn.execute("analyze")
    return sessions


@pytest.mark.parametrize("per_branch", [0, PER_BRANCH])
async def test_s16_an_ordinal_touches_as_many_rows_in_a_hundred_messages_as_in_ten_thousand(
    conn: asyncpg.Connection, per_branch: int
) -> None:
    sessions = await made(conn, per_branch=per_branch)
    for speaker in ("all", "user", "assistant"):
        for share in (0.0, 0.3, 0.7, -0.4, -0.01):
            found = {}
            for length, uid in sessions.items():
                wanted = {"speaker": speaker, "ordinal": round(share * length / 2), "leaf_id": f"m{length - 1}"}
                found[length] = await touched(conn, "transcript_row", session_uid=uid, **wanted)
            for short, long in zip(found[SHORT], found[LONG], strict=True):
                # A path of many branches is searched by halves: a few rows for each doubling of their number.
                # Within a message, it depends on which of its rows is asked for.
                more = 12 * MORE_BRANCHES if per_branch else 8
                assert long.rows <= short.rows + more, (speaker, share, short, long)
                # An index of a larger table is a page deeper.
                assert long.pages <= short.pages + 2 * more + 8, (speaker, share, short, long)
                assert not long.scans, long


async def test_s16_an_interior_leaf_is_as_cheap(conn: asyncpg.Connection) -> None:
    uid = (await made(conn))[LONG]
    costs = [await touched(conn, "transcript_row", session_uid=uid, leaf_id=f"m{leaf}", speaker="user", ordinal=-1) for leaf in (50, 5000)]
    for near, far in zip(*costs, strict=True):
        assert far.rows <= near.rows + 1 and not far.scans


async def test_s13_a_slice_and_a_time_touch_what_they_answer_and_no_more(conn: asyncpg.Connection) -> None:
    sessions = await made(conn)
    found: dict[int, list[float]] = {}
    for length, uid in sessions.items():
        where = {"session_uid": uid, "leaf_id": f"m{length - 1}", "speaker": "all"}
        parts = await touched(conn, "transcript_slice", **where, first=40, last=59)
        since, until = (f"2026-03-01T12:00:{second}Z" for second in (10, 29))
        parts += await touched(conn, "transcript_between", **where, since=since, until=until, count=100)
        assert not any(part.scans for part in parts), parts
        found[length] = [part.rows for part in parts]
    assert all(long <= short + 40 for short, long in zip(found[SHORT], found[LONG], strict=True)), found
