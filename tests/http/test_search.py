"""Search over one's own sessions."""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import quote

import httpx

from settings import Settings
from tests.http.conftest import NOWHERE, caller_of_headers, running
from tests.http.seeding import WHOLE_BRANCH, Seed, after
from tests.models import says, script
from tests.system import running_system

Begin = Callable[[str], Seed]
ALICE = {"x-test-principal": "alice"}
PATH = "/api/search/sessions"


async def said(seed: Begin, session_id: str, *contents: str, owner: str = "alice", at: float = 0.0, **columns: Any) -> Seed:
    """A session of so many user messages, a second apart."""
    s = await seed(session_id).session(owner=owner, **columns)
    async with s.conn.transaction():
        await s.branch(0, len(contents) - 1, [0], [WHOLE_BRANCH])
        for depth, content in enumerate(contents):
            parent = f"{session_id}-{depth - 1}" if depth else None
            await s.message(f"{session_id}-{depth}", parent, depth, content=content, created_at=after(at + depth))
    return s


async def found(client: httpx.AsyncClient, words: str, headers: dict[str, str] = ALICE, **query: Any) -> list[str]:
    answer = await client.get(PATH, params={"q": words, **query}, headers=headers)
    assert answer.status_code == 200, answer.text
    return [hit["message_id"] for hit in answer.json()["hits"]]


async def test_s27_s28_words_are_found_in_ones_own_sessions_only(offline: httpx.AsyncClient, seed: Begin) -> None:
    s = await said(seed, "a", "The blue teapot is broken.", "Which teapot?", "The BLUE one, from Zürich.", at=10)
    await s.steering("a-g", "a-1", before_segment=0, delivered_at=after(14), content="Only blue teapots, please.")
    await said(seed, "b", "A blue teapot of mine.", owner="bob")
    await said(seed, "c", "A blue teapot elsewhere.", tenant="other")
    await said(seed, "d", "A blue teapot of nobody.", owner="root")
    assert await found(offline, "blue") == ["a-g", "a-2", "a-0"]
    assert await found(offline, "teapot blue") == ["a-0"]
    assert await found(offline, '"blue teapot"') == ["a-0"]
    assert await found(offline, "teapot -blue") == ["a-1"]
    assert await found(offline, "zürich OR broken") == ["a-2", "a-0"]
    assert await found(offline, "-nothing") == ["a-g", "a-2", "a-1", "a-0"]
    assert await found(offline, "blue", {"x-test-principal": "bob", "x-test-roles": "admin"}) == ["b-0"]
    assert await found(offline, "blue", ALICE | {"x-test-tenant": "other"}) == ["c-0"]
    hit = (await offline.get(f"{PATH}?q=broken", headers=ALICE)).json()["hits"][0]
    assert hit == {"session_id": "a", "message_id": "a-0", "snippet": "The blue teapot is broken."}


async def test_words_are_found_within_paths_addresses_and_compounds(offline: httpx.AsyncClient, seed: Begin) -> None:
    filler = "so it went on. " * 30
    await said(
        seed,
        "a",
        "Open /orders/2024-17, please",
        "Ask ann@example.org about the blue-green teapot",
        f"{filler}pi is 3.14 & more: x_y {filler}",
    )
    for words, hit in (
        ("orders", "a-0"),
        ("/orders", "a-0"),
        ("/orders/2024-17", "a-0"),
        ("ann", "a-1"),
        ("ann@example.org", "a-1"),
        ("green", "a-1"),
        ('"blue-green teapot"', "a-1"),
        ("3.14", "a-2"),
        ("x_y", "a-2"),
    ):
        assert await found(offline, words) == [hit], words
    assert await found(offline, "blue -green") == []
    snippet = (await offline.get(PATH, params={"q": "3.14"}, headers=ALICE)).json()["hits"][0]["snippet"]
    assert "3.14 & more: x_y" in snippet and len(snippet) < 400


async def test_s14_any_query_is_answered_or_refused(offline: httpx.AsyncClient, seed: Begin) -> None:
    s = await said(seed, "a", "x" * 3000 + " needle " + " ".join(f"w{number}" for number in range(60_000)), "it's a:b & c | d <tag> 'q'")
    for words in ("&", "!", "'", '"', "a & | b", "'; drop", f"={s.uid}", f"'={s.uid}'", "()", "<->", ":*", "\\", "%", "🙂"):
        assert await found(offline, words) in ([], ["a-1"]), words
    assert await found(offline, "needle") == ["a-0"]
    snippet = (await offline.get(f"{PATH}?q=w77", headers=ALICE)).json()["hits"][0]["snippet"]
    assert "w77" in snippet and len(snippet) < 400
    for query in (
        "",
        "q=",
        "q=%00",
        "q=a&limit=0",
        "q=a&limit=501",
        "q=a&cursor=x",
        "q=a&cursor=" + quote("MjAyNi0wMy0wMQ"),
        "q=" + "a" * 1001,
    ):
        answer = await offline.get(f"{PATH}?{query}", headers=ALICE)
        assert (answer.status_code, answer.json()["code"]) == (422, "bad_request"), query


async def test_hits_page_newest_first_without_gaps_among_equal_times(offline: httpx.AsyncClient, seed: Begin) -> None:
    for number in range(3):
        await said(seed, f"s{number}", *(f"word {depth}" for depth in range(3)), at=number % 2)
    pages: list[list[str]] = []
    cursor = None
    while not pages or cursor:
        query = {"q": "word", "limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await offline.get(PATH, params=query, headers=ALICE)).json()
        pages.append([hit["message_id"] for hit in page["hits"]])
        cursor = page["next_cursor"]
    assert [len(page) for page in pages] == [2, 2, 2, 2, 1]
    order = [name for page in pages for name in page]
    assert order[0] == "s1-2" and len(set(order)) == 9 and set(order[-2:]) == {"s0-0", "s2-0"}


async def test_r177_what_is_over_is_not_found(settings: Settings, seed: Begin) -> None:
    from api.access import identify
    from api.app import create_app

    await said(seed, "over", "word", expires_at=after(0))
    live = await said(seed, "live", "word", expires_at=after(0))
    await live.turn("t1", 1)
    for hours, names in ((1.0, ["live-0"]), (0.0, ["live-0", "over-0"])):
        app = create_app(settings.model_copy(update={"session_ttl_hours": hours}), temporal_address=NOWHERE)
        app.dependency_overrides[identify] = caller_of_headers
        async with running(app) as client:
            assert sorted(await found(client, "word")) == names


async def test_r36_s20_an_answer_is_found_at_once_and_a_deleted_session_no_more(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("The answer is ", "forty-two."))) as system:
        turn = await system.chat("s1", "What is the question?")
        hits = (await system.get("/search/sessions?q=forty-two", api=0))["hits"]
        assert hits == [{"session_id": "s1", "message_id": turn["message_id"], "snippet": "The answer is forty-two."}]
        assert len((await system.get("/search/sessions?q=question"))["hits"]) == 1
        await system.post("/chat", {"session_id": "s1", "content": "Be terse, Deep Thought", "message_type": "steering", "id": "g1"})
        assert [hit["message_id"] for hit in (await system.get("/search/sessions?q=deep+thought"))["hits"]] == ["g1"]
        assert (await system.http.delete("/api/sessions/s1")).status_code == 202
        for words in ("forty-two", "question", "thought"):
            await system.until(partial(_none, system, words))


async def _none(system: Any, words: str) -> bool:
    return (await system.get(f"/search/sessions?q={words}"))["hits"] == []  # type: ignore[no-any-return]
