"""The change feed and the records of prompts."""

from collections.abc import Callable
from typing import Any

import asyncpg
import httpx
import pytest

from tests.http.seeding import WHOLE_BRANCH, Seed, after
from tests.models import calls, says, script
from tests.system import Answer, running_system

Begin = Callable[[str], Seed]
ADMIN = {"x-test-principal": "root", "x-test-roles": "admin"}


async def changes(client: httpx.AsyncClient, **params: Any) -> Answer:
    answer = await client.get("/api/sessions/s1/changes", params=params, headers=ADMIN)
    assert answer.status_code == 200, answer.text
    found: Answer = answer.json()
    return found


async def conversation(seed: Begin) -> Seed:
    """Three messages whose changes came in another order than their times."""
    s = await seed("s1").session(active_leaf_id="m3", feed=7)
    async with s.conn.transaction():
        await s.branch(0, 2, [0], [WHOLE_BRANCH])
        await s.message("m1", None, 0, change=5, updated_at=after(1))
        await s.message("m2", "m1", 1, change=2, updated_at=after(20))
        await s.message("m3", "m2", 2, change=7, updated_at=after(10))
    return s


def ids(found: Answer) -> list[str]:
    return [row["id"] for row in found["messages"]]


async def test_r258_what_gets_a_result_appears_again(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"}), text="Opening."), says(" Done."), says(" And on."))
    async with running_system(database_url, temporal_address, scripted) as system:
        asked = await system.chat("s1", id="m1")
        first = await system.get("/sessions/s1/changes")
        assert (ids(first), first["active_leaf_id"]) == (["m1", asked["message_id"]], asked["message_id"])
        assert first["messages"] == await system.messages("s1")
        await system.resume("s1", "c1", {"opened": True})
        after_first = f"/sessions/s1/changes?after={first['next_cursor']}"
        second = await system.get(after_first)
        assert ids(second) == [asked["message_id"]]
        assert second["messages"][0]["segments"][1]["tools"][0]["output"] == {"opened": True}
        nothing = await system.get(f"/sessions/s1/changes?after={second['next_cursor']}")
        assert (nothing["messages"], nothing["next_cursor"]) == ([], second["next_cursor"])
        body = {"session_id": "s1", "content": "be brief", "message_type": "steering", "id": "g1"}
        assert (await system.post("/chat/stream", body)).status_code == 200
        third = await system.get(f"/sessions/s1/changes?after={second['next_cursor']}")
        assert sorted(ids(third)) == sorted(["g1", asked["message_id"]])
        steering = next(row for row in third["messages"] if row["id"] == "g1")
        assert (steering["steering"]["status"], steering["parent_id"]) == ("delivered", None)


async def test_the_feed_is_read_page_by_page_in_the_order_of_commits(offline: httpx.AsyncClient, seed: Begin) -> None:
    await conversation(seed)
    cursor: str | None = None
    seen: list[str] = []
    for _ in range(3):
        page = await changes(offline, limit=1, **({"after": cursor} if cursor else {}))
        cursor, seen = page["next_cursor"], [*seen, *ids(page)]
    assert seen == ["m2", "m1", "m3"]
    end = await changes(offline, after=cursor)
    assert (end["messages"], end["next_cursor"], end["active_leaf_id"]) == ([], cursor, "m3")


async def test_r260_a_time_means_what_is_strictly_later(offline: httpx.AsyncClient, seed: Begin) -> None:
    await conversation(seed)
    assert ids(await changes(offline, after=after(10).isoformat())) == ["m2"]
    assert ids(await changes(offline, after="2026-03-01T12:00:09.999Z")) == ["m2", "m3"]
    assert ids(await changes(offline, after="2026-03-01T12:00:10")) == ["m2"]
    late = await changes(offline, after="2026-03-02")
    assert late["messages"] == []
    assert ids(await changes(offline, after=late["next_cursor"])) == []


@pytest.mark.parametrize("cursor", ["", "x", "7", "-1-00000000", "2026-13-45T00:00:00Z", "12.0", "7-00000000", "9999-12-31T23:59:59-23:59"])
async def test_r261_a_malformed_cursor_is_422(offline: httpx.AsyncClient, seed: Begin, cursor: str) -> None:
    await conversation(seed)
    answer = await offline.get("/api/sessions/s1/changes", params={"after": cursor}, headers=ADMIN)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_request")


async def test_r262_what_commits_late_is_still_delivered(offline: httpx.AsyncClient, seed: Begin, database_url: str) -> None:
    s = await conversation(seed)
    before = await changes(offline)
    slow = await asyncpg.connect(database_url)
    try:
        transaction = slow.transaction()
        await transaction.start()
        feed = await slow.fetchval("update sessions set feed = feed + 1 where session_uid = $1 returning feed", s.uid)
        await slow.execute("update messages set change = $2, updated_at = $3 where session_uid = $1 and id = 'm1'", s.uid, feed, after(2))
        passed = await changes(offline, after=before["next_cursor"])
        assert (passed["messages"], passed["next_cursor"]) == ([], before["next_cursor"])
        await transaction.commit()
    finally:
        await slow.close()
    assert ids(await changes(offline, after=passed["next_cursor"])) == ["m1"]


async def test_the_prompt_of_an_answer_is_read_with_its_texts(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        turn = await system.chat("s1", id="m1")
        found = await system.get(f"/sessions/s1/messages/{turn['message_id']}/prompt")
        [part] = found["prompt"]
        assert found["message_id"] == turn["message_id"]
        assert (part["source"], part["name"], part["text"]) == ("profile", "assistant", "You are an assistant under test.")
        assert part["sha256"].startswith(part["version"])
        assert (await system.get("/sessions/s1/messages/m1/prompt"))["prompt"] == []
        absent = await system.http.get("/api/sessions/s1/messages/nope/prompt")
        assert (absent.status_code, absent.json()["detail"]) == (404, "there is no such message")
        foreign = await system.http.get(f"/api/sessions/s1/messages/{turn['message_id']}/prompt", headers={"x-test-principal": "bob"})
        assert foreign.status_code == 404
