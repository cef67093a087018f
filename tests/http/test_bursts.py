"""Many writes to one session at once, through two apis."""

import asyncio
import os

from tests.model.invariants import check_rows
from tests.models import says, script
from tests.system import System, running_system

WRITES = 204 if os.environ.get("TEST_LONG") else 60
CALLERS = 6
ASYNC = {"prefer": "respond-async"}


async def order(system: System, turns: int) -> list[str]:
    """The users' messages in the order of their turns, once so many are over."""

    async def over() -> bool:
        return bool(await system.conn.fetchval("select count(*) = $1 from turns where final is not null", turns))

    await system.until(over, 60.0)
    rows = await system.conn.fetch("select user_message_id from turns order by number")
    return [row["user_message_id"] for row in rows]


async def test_s40_twenty_turns_sent_at_once_appear_in_one_order_each_answered_or_cancelled(
    database_url: str, temporal_address: str
) -> None:
    async with running_system(database_url, temporal_address, script(says("done")), apis=2) as system:
        bodies = [{"session_id": "s1", "id": f"m{number}", "content": f"hello {number}"} for number in range(20)]
        answers = await asyncio.gather(*(system.post("/chat", body, api=place % 2, headers=ASYNC) for place, body in enumerate(bodies)))
        assert {answer.status_code for answer in answers} == {202}
        turns = await order(system, len(bodies))
        assert sorted(turns) == sorted(body["id"] for body in bodies)
        rows = await system.messages("s1")
        assert [row["id"] for row in rows[::2]] == turns, "each hangs under the one before"
        for row in rows[1::2]:
            assert (row["content"], row["error"]) == ("done", None) or row["error"]["type"] == "cancelled"
        assert rows[-1]["error"] is None
        for answer in answers:
            final = await system.conn.fetchval("select final is not null from turns where turn_id = $1", answer.json()["turn_id"])
            assert final is True
        await check_rows(system, "s1")


async def test_l27_a_burst_of_writes_to_one_session_is_served_each_callers_own_in_order(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("done")), apis=2) as system:

        async def send(caller: int, number: int) -> None:
            body = {"session_id": "s1", "id": f"{caller}-{number}", "content": "hello", "when_busy": "enqueue"}
            answer = await system.post("/chat", body, api=caller % 2, headers=ASYNC)
            assert answer.status_code == 202, answer.text

        async def caller(number: int) -> None:
            for place in range(WRITES // CALLERS):
                await send(number, place)

        await asyncio.gather(*(caller(number) for number in range(CALLERS)))
        turns = await order(system, WRITES)
        for number in range(CALLERS):
            assert [turn for turn in turns if turn.startswith(f"{number}-")] == [f"{number}-{place}" for place in range(WRITES // CALLERS)]
        assert await system.conn.fetchval("select count(*) from turns where error is not null") == 0
        assert len(system.script.requests) == len(turns)
