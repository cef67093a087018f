"""A session changes hands while somebody waits for it or reads it."""

import asyncio
from functools import partial

from tests.http.conftest import served_beside
from tests.http.sse import opened
from tests.models import says, script, waits
from tests.system import running_system

EVENTS = "/api/sessions/s1/events"
ALICE, BOB = {"x-test-principal": "alice"}, {"x-test-principal": "bob"}


async def test_r41_who_had_a_session_is_told_nothing_of_it_any_more(database_url: str, temporal_address: str) -> None:
    """Streams end on every process, who waits for a turn is answered 404; who has the session now and admins read on."""
    go = asyncio.Event()
    scripted = script(says("Mine."), waits(go, "Before. ", "After."))
    async with running_system(database_url, temporal_address, scripted) as system, served_beside(system, temporal_address) as beside:
        post = partial(system.post, "/chat", headers=ALICE)
        assert (await post({"session_id": "s1", "content": "hello"})).status_code == 200
        waiting = asyncio.create_task(post({"session_id": "s1", "content": "go on"}))
        async with opened(beside, EVENTS, headers=ALICE) as (_, hers), opened(beside, EVENTS) as (_, admins):
            while (await anext(hers)).data.get("text") != "Before. ":
                pass
            assert (await system.http.patch("/api/sessions/s1", json={"owner_id": "bob"})).status_code == 200
            assert [frame async for frame in hers] == []
            go.set()
            assert (await waiting).json()["code"] == "not_found"
            while (await anext(admins)).data.get("text") != "After.":
                pass
        assert (await beside.get(EVENTS, headers=ALICE)).status_code == 404
        async with opened(beside, f"{EVENTS}?until=turn", headers=BOB) as (_, his):
            assert [frame.type async for frame in his][-1] == "turn.completed"
        assert (await system.http.patch("/api/sessions/s1", json={"owner_id": None})).status_code == 200
        assert (await beside.get(EVENTS, headers=BOB)).status_code == 404
