"""Metrics of sessions, from their rows."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx

from tests.http.seeding import WHOLE_BRANCH, Seed, after, insert
from tests.models import calls, raises, says, script
from tests.system import running_system

Begin = Callable[[str], Seed]
ALICE = {"x-test-principal": "alice"}
BOB = {"x-test-principal": "bob"}
ADMIN = {"x-test-principal": "root", "x-test-roles": "admin"}
NOTHING = {
    "turns": 0,
    "steps": 0,
    "input_tokens": 0,
    "output_tokens": 0,
    "cost_usd": None,
    "tool_calls": 0,
    "errors": {},
    "first_text_ms": {"p50": None, "p95": None},
    "turn_ms": {"p50": None, "p95": None},
    "host_wait_ms": 0,
}


async def measured(seed: Begin) -> Seed:
    """Twenty turns that took 1 to 20 s, two of them failed, one more that runs; and a batch of two that a host took 30 s for."""
    s = await seed("s1").session(owner="alice")
    error = '{"type": "timeout", "message": "m", "retry_allowed": true}'
    for number in range(1, 21):
        failed = {"state": "failed", "error": error} if number <= 2 else {"state": "completed"}
        await s.turn(f"t{number}", number, ended_at=after(number), first_text_at=after(number / 10), final={}, **failed)
        if number <= 3:
            await insert(s.conn, "steps", session_uid=s.uid, turn_id=f"t{number}", attempt=1, step=1)
            ledger = {"session_uid": s.uid, "turn_id": f"t{number}", "attempt": 1, "step": 1, "tenant": "default", "principal": "alice"}
            used = {"input_tokens": 10, "output_tokens": number, "cost_usd": number if number < 3 else None}
            await insert(s.conn, "usage_ledger", **ledger, **used, model="m", at=after(number))
    await s.turn("t21", 21, state="running", started_at=after(50), first_text_at=after(40))
    async with s.conn.transaction():
        await s.branch(0, 0, [0], [WHOLE_BRANCH])
        await s.message("a1", None, 0, role="assistant")
    done: dict[str, Any] = {"state": "recorded", "outcome": "success"}
    await s.call("h1", "a1", segment=0, recorded_at=after(20), **done)
    await s.call("h2", "a1", segment=0, position=1, recorded_at=after(40), **done)
    await s.call("c1", "a1", segment=0, position=2, category="server", recorded_at=after(90), **done)
    await s.batch("a1", at=10)
    return s


async def test_s72_the_figures_of_a_session(offline: httpx.AsyncClient, seed: Begin) -> None:
    await measured(seed)
    answer = await offline.get("/api/metrics/sessions/s1", headers=ALICE)
    assert answer.json() == {
        "session_id": "s1",
        "turns": 21,
        "steps": 3,
        "input_tokens": 30,
        "output_tokens": 6,
        "cost_usd": "3",
        "tool_calls": 3,
        "errors": {"timeout": 2},
        "first_text_ms": {"p50": 1100, "p95": 2000},
        "turn_ms": {"p50": 10_000, "p95": 19_000},
        "host_wait_ms": 30_000,
    }


async def test_s72_metrics_are_ones_own_and_the_limit_comes_last(offline: httpx.AsyncClient, seed: Begin) -> None:
    await measured(seed)
    for number, owner in enumerate(("alice", "bob", "root", "bob", "alice")):
        await seed(f"o{number}").session(owner=owner, at=10.0 + number)
    await seed("elsewhere").session(owner="alice", tenant="other")
    absent = await offline.get("/api/metrics/sessions/none", headers=ALICE)
    for who in (BOB, ADMIN, ADMIN | {"x-test-tenant": "other"}, ALICE | {"x-test-tenant": "other"}):
        foreign = await offline.get("/api/metrics/sessions/s1", headers=who)
        assert (foreign.status_code, foreign.content) == (404, absent.content)
    pages: list[list[str]] = []
    cursor = None
    while not pages or cursor:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await offline.get("/api/metrics/sessions", params=query, headers=ALICE)).json()
        pages.append([line["session_id"] for line in page["sessions"]])
        cursor = page["next_cursor"]
    assert pages == [["o4", "o0"], ["s1"]]
    late = await offline.get("/api/metrics/sessions", params={"limit": 1, "updated_after": after(5).isoformat()}, headers=BOB)
    assert [line["session_id"] for line in late.json()["sessions"]] == ["o3"]
    mine = (await offline.get("/api/metrics/sessions", headers=ADMIN)).json()
    assert mine == {"sessions": [{"session_id": "o2", **NOTHING}], "next_cursor": None}
    for query_text in ("limit=0", "limit=501", "cursor=x", "updated_after=2026-01-01"):
        assert (await offline.get(f"/api/metrics/sessions?{query_text}", headers=ALICE)).status_code == 422


async def test_s73_the_same_on_every_process_and_after_a_restart(database_url: str, temporal_address: str) -> None:
    scripted = script(
        calls(("c1", "add", {"a": 1, "b": 2}), text="So: "),
        calls(("h1", "open_page", {"url": "u"})),
        says("Done."),
        raises(RuntimeError("x")),
        says("Again."),
    )
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        await system.chat("s1", "add")
        await asyncio.sleep(0.05)
        await system.resume("s1", "h1")
        failed = await system.chat("s1", "fail")
        before = await system.get("/metrics/sessions/s1")
        assert before["errors"] == {failed["error"]["type"]: 1}
        await system.post(f"/sessions/s1/turns/{failed['turn_id']}/retry")
        found = [await system.get("/metrics/sessions/s1", api=api) for api in (0, 1)]
        listed = (await system.get("/metrics/sessions"))["sessions"]
        assert found == [found[0], listed[0]]
        spent = await system.conn.fetchrow("select sum(input_tokens) as i, sum(output_tokens) as o from usage_ledger")
    one = found[0]
    assert spent
    assert (one["turns"], one["steps"], one["tool_calls"], one["errors"]) == (3, 5, 2, {})
    assert (one["input_tokens"], one["output_tokens"]) == (spent["i"], spent["o"]) and one["input_tokens"] > 0
    assert 0 <= one["first_text_ms"]["p50"] <= one["turn_ms"]["p95"] and 50 <= one["host_wait_ms"] < 30_000
    async with running_system(database_url, temporal_address, scripted, like=system) as again:
        assert await again.get("/metrics/sessions/s1") == one
