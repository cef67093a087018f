"""Reads: what the rows say, to those who may see it. Temporal is not there in any of these."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from api.access import identify
from api.app import create_app
from settings import Settings
from tests.http.conftest import NOWHERE, caller_of_headers, running
from tests.http.seeding import WHOLE_BRANCH, Seed, after

Begin = Callable[[str], Seed]
ALICE = {"x-test-principal": "alice"}
BOB = {"x-test-principal": "bob"}
ADMIN = {"x-test-principal": "root", "x-test-roles": "admin"}
FOREIGN_ADMIN = ADMIN | {"x-test-tenant": "other"}


async def conversation(seed: Begin, session_id: str = "s1", **session: Any) -> Seed:
    """u1 → a1 (thinking, text, two calls, text) on branch 0; u2b → a2b on branch 1, which forks behind a1; a1 → u2 on branch 0."""
    s = await seed(session_id).session(active_leaf_id="a2b", revision=4, turn_number=2, message_count=5, **session)
    async with s.conn.transaction():
        await s.branch(0, 2, [0], [WHOLE_BRANCH])
        await s.branch(1, 3, [0, 1], [1, WHOLE_BRANCH])
        await s.message("u1", None, 0)
        await s.message("a1", "u1", 1, role="assistant", turn_id="t1", usage='{"requests": 2}', model="m")
        await s.message("u2", "a1", 2)
        await s.message("u2b", "a1", 2, branch=1)
        await s.message("a2b", "u2b", 3, branch=1, role="assistant", error='{"type": "timeout", "message": "m", "retry_allowed": true}')
    await s.segment("a1", 0, "thinking", "hm")
    await s.segment("a1", 1, "text", "Look: ")
    await s.segment("a1", 2, "tool_group")
    await s.segment("a1", 3, "text", "done")
    recorded: dict[str, Any] = {"state": "recorded", "recorded_at": after(2)}
    await s.call("c1", "a1", segment=2, position=0, outcome="success", output='{"n": 1.50, "z": null}', category="server", **recorded)
    await s.call("c2", "a1", segment=2, position=1, outcome="failed", status="failed", output='"no"', **recorded)
    return s


async def test_r67_the_path_of_a_leaf_with_its_segments_and_calls(offline: httpx.AsyncClient, seed: Begin) -> None:
    await conversation(seed)
    active = (await offline.get("/api/sessions/s1/messages", headers=ADMIN)).json()["messages"]
    assert [row["id"] for row in active] == ["u1", "a1", "u2b", "a2b"]
    assert active[1]["segments"] == [
        {"kind": "thinking", "text": "hm"},
        {"kind": "text", "text": "Look: "},
        {
            "kind": "tool_group",
            "tools": [
                {"id": "c1", "name": "open_page", "input": {"url": "https://example.org"}, "output": {"n": 1.5, "z": None}},
                {
                    "id": "c2",
                    "name": "open_page",
                    "input": {"url": "https://example.org"},
                    "output": "no",
                    "outcome": "failed",
                    "status": "failed",
                },
            ],
        },
        {"kind": "text", "text": "done"},
    ]
    assert active[1]["usage"] == {"requests": 2}
    assert active[3]["error"]["type"] == "timeout"
    assert active[0]["parent_id"] is None and active[0]["steering"] is None and active[0]["created_at"] == "2026-03-01T12:00:00Z"
    older = (await offline.get("/api/sessions/s1/messages?leaf_id=u2", headers=ADMIN)).json()["messages"]
    assert [row["id"] for row in older] == ["u1", "a1", "u2"]
    cut = (await offline.get("/api/sessions/s1/messages?leaf_id=u1", headers=ADMIN)).json()["messages"]
    assert [row["id"] for row in cut] == ["u1"]
    absent = await offline.get("/api/sessions/s1/messages?leaf_id=nope", headers=ADMIN)
    assert (absent.status_code, absent.json()["code"]) == (404, "not_found")


async def test_r61_the_tree_and_one_message(offline: httpx.AsyncClient, seed: Begin) -> None:
    await conversation(seed)
    tree = (await offline.get("/api/sessions/s1/tree", headers=ADMIN)).json()["messages"]
    assert {(row["id"], row["parent_id"]) for row in tree} == {
        ("u1", None),
        ("a1", "u1"),
        ("u2", "a1"),
        ("u2b", "a1"),
        ("a2b", "u2b"),
    }
    one = (await offline.get("/api/sessions/s1/messages/a1", headers=ADMIN)).json()
    path = (await offline.get("/api/sessions/s1/messages", headers=ADMIN)).json()["messages"]
    assert one == path[1]
    assert (await offline.get("/api/sessions/s1/messages/nope", headers=ADMIN)).status_code == 404


async def test_r106_a_session_shows_its_pending_action(offline: httpx.AsyncClient, seed: Begin) -> None:
    s = await conversation(seed)
    await s.call("h1", "a2b", segment=0, position=0, deadline_at=after(60))
    await s.call("h2", "a2b", segment=0, position=1, tool_name="ask_user", arguments='{"question": "really?"}')
    await s.call("x", "a2b", segment=0, position=2, category="server")
    await s.batch("a2b")
    view = (await offline.get("/api/sessions/s1", headers=ADMIN)).json()
    assert view["status"] == "waiting_host"
    assert view["revision"] == 4 and view["turn_number"] == 2 and view["active_leaf_id"] == "a2b" and view["live_turn"] is None
    assert view["pending_action"] == {
        "tool_call_id": "h1",
        "tool_name": "open_page",
        "arguments": {"url": "https://example.org"},
        "assistant_message_id": "a2b",
        "queued": [{"call_id": "h2", "tool_name": "ask_user", "arguments": {"question": "really?"}}],
        "requested_at": "2026-03-01T12:00:01Z",
        "deadline_at": "2026-03-01T12:01:00Z",
    }


async def test_times_are_utc_wherever_the_database_is(settings: Settings, seed: Begin) -> None:
    s = await conversation(seed)
    await s.call("h1", "a2b", segment=0, position=0, deadline_at=after(60))
    await s.batch("a2b")
    name = await s.conn.fetchval("select current_database()")
    await s.conn.execute(f"alter database {name} set timezone = 'Pacific/Kiritimati'")
    app = create_app(settings, temporal_address=NOWHERE)
    app.dependency_overrides[identify] = caller_of_headers
    async with running(app) as client:
        for path in ("/sessions/s1", "/sessions/s1/messages", "/sessions/s1/changes", "/sessions/s1/transcript", "/host-actions"):
            text = (await client.get(f"/api{path}", headers=ADMIN)).text
            assert "2026-03-01T12:0" in text and "+14:00" not in text, path


async def test_a_session_shows_its_live_turn(offline: httpx.AsyncClient, seed: Begin) -> None:
    s = await conversation(seed)
    await s.turn("t1", 1, state="completed", final={})
    assert (await offline.get("/api/sessions/s1", headers=ADMIN)).json()["status"] == "idle"
    await s.turn("t2", 2)
    view = (await offline.get("/api/sessions/s1", headers=ADMIN)).json()
    assert view["status"] == "running"
    assert (view["live_turn"]["turn_id"], view["live_turn"]["attempt"]) == ("t2", 1)


@pytest.mark.parametrize(
    "path", ["", "/messages", "/tree", "/messages/a1", "/events", "/events?after=before:t1"], ids=lambda path: path or "session"
)
async def test_r38_a_foreign_session_is_an_absent_one(offline: httpx.AsyncClient, seed: Begin, path: str) -> None:
    await conversation(seed, owner="alice")
    foreign = await offline.get(f"/api/sessions/s1{path}", headers=BOB)
    absent = await offline.get("/api/sessions/absent", headers=BOB)
    assert foreign.status_code == absent.status_code == 404
    assert foreign.content == absent.content
    assert (await offline.get("/api/sessions", headers=BOB)).json() == {"sessions": [], "next_cursor": None}


async def test_r38_a_foreign_session_takes_no_writes(offline: httpx.AsyncClient, seed: Begin) -> None:
    """Refused before Temporal (which is not there) is asked."""
    await conversation(seed, owner="alice")
    absent = (await offline.get("/api/sessions/absent", headers=BOB)).content
    for path, body in (
        ("/api/chat", {"session_id": "s1", "content": "hi"}),
        ("/api/chat/stream", {"session_id": "s1", "content": "hi"}),
        ("/api/chat", {"session_id": "s1", "tool_call_id": "c1", "tool_result": 1}),
        ("/api/sessions/s1/cancel", {}),
        ("/api/sessions/s1/repair", {}),
        ("/api/sessions/s1/turns/t1/retry", {}),
    ):
        answer = await offline.post(path, json=body, headers=BOB)
        assert (answer.status_code, answer.content) == (404, absent), path


async def test_r40_an_admin_sees_its_tenant_and_no_other(offline: httpx.AsyncClient, seed: Begin) -> None:
    await conversation(seed, owner="alice")
    await seed("orphan").session(owner=None, at=5)
    assert (await offline.get("/api/sessions/s1", headers=ALICE)).status_code == 200
    assert (await offline.get("/api/sessions/s1", headers=ADMIN)).status_code == 200
    assert (await offline.get("/api/sessions/s1", headers=FOREIGN_ADMIN)).status_code == 404
    assert (await offline.get("/api/sessions/orphan", headers=ALICE)).status_code == 404
    listed = (await offline.get("/api/sessions", headers=ADMIN)).json()["sessions"]
    assert [line["session_id"] for line in listed] == ["orphan", "s1"]
    assert [line["session_id"] for line in (await offline.get("/api/sessions", headers=ALICE)).json()["sessions"]] == ["s1"]
    assert (await offline.get("/api/sessions", headers=FOREIGN_ADMIN)).json()["sessions"] == []


async def test_sessions_page_newest_first_without_gaps_among_equal_times(offline: httpx.AsyncClient, seed: Begin) -> None:
    for number in range(7):
        await seed(f"s{number}").session(at=float(number // 3))
    pages: list[list[str]] = []
    cursor = None
    while not pages or cursor:
        query = {"limit": "2"} | ({"cursor": cursor} if cursor else {})
        page = (await offline.get("/api/sessions", params=query, headers=ADMIN)).json()
        pages.append([line["session_id"] for line in page["sessions"]])
        cursor = page["next_cursor"]
    assert [len(page) for page in pages] == [2, 2, 2, 1]
    order = [name for page in pages for name in page]
    assert order[0] == "s6" and set(order[1:4]) == {"s3", "s4", "s5"} and set(order[4:]) == {"s0", "s1", "s2"}
    later = (await offline.get("/api/sessions", params={"updated_after": after(1.0).isoformat()}, headers=ADMIN)).json()
    assert [line["session_id"] for line in later["sessions"]] == ["s6"]
    unescaped = (await offline.get(f"/api/sessions?updated_after={after(1.0).isoformat()}", headers=ADMIN)).json()
    assert unescaped == later


async def test_host_actions_are_listed_oldest_first_to_those_who_may_see_them(offline: httpx.AsyncClient, seed: Begin) -> None:
    for number, owner in enumerate(["alice", "bob", "alice"]):
        s = await seed(f"s{number}").session(owner=owner)
        async with s.conn.transaction():
            await s.branch(0, 0, [0], [WHOLE_BRANCH])
            await s.message("a1", None, 0, role="assistant")
        await s.call("h1", "a1", segment=0)
        await s.call("h2", "a1", segment=1)
        await s.batch("a1", at=10.0 - number)
    everything = (await offline.get("/api/host-actions", headers=ADMIN)).json()
    assert [action["session_id"] for action in everything["host_actions"]] == ["s2", "s1", "s0"]
    assert everything["host_actions"][0]["tool_call_id"] == "h1"
    assert [call["call_id"] for call in everything["host_actions"][0]["queued"]] == ["h2"]
    first = (await offline.get("/api/host-actions?limit=1", headers=ALICE)).json()
    second = (await offline.get("/api/host-actions", params={"limit": 1, "after": first["next_cursor"]}, headers=ALICE)).json()
    assert [page["host_actions"][0]["session_id"] for page in (first, second)] == ["s2", "s0"]
    assert second["next_cursor"] is None
    assert (await offline.get("/api/host-actions", headers=FOREIGN_ADMIN)).json()["host_actions"] == []


@pytest.mark.parametrize(
    "path",
    [
        "/api/sessions?limit=0",
        "/api/sessions?limit=501",
        "/api/sessions?limit=x",
        "/api/sessions?cursor=%00",
        "/api/sessions?cursor=bm90IG9uZQ",
        "/api/sessions?updated_after=2026-01-01T00:00:00",
        "/api/sessions?updated_after=0.5",
        "/api/sessions?updated_after=1767225600",
        "/api/sessions?updated_after=now",
        "/api/host-actions?after=%C3%A4",
        "/api/host-actions?limit=501",
        "/api/sessions/" + "x" * 65,
        "/api/sessions/a%20b",
        "/api/sessions/a%00",
        "/api/sessions/s1/messages/%E2%82%AC",
        "/api/sessions/s1/messages?leaf_id=a%20b",
        "/api/sessions/s1/events?after=",
        "/api/sessions/s1/events?after=-1",
        "/api/sessions/s1/events?after=1.2.3",
        "/api/sessions/s1/events?after=before:",
        "/api/sessions/s1/events?after=%D9%A1",
        "/api/sessions/s1/events?until=never",
        "/api/sessions/s1/events?after=9999999999999999999",
    ],
)
async def test_malformed_parameters_are_422(offline: httpx.AsyncClient, seed: Begin, path: str) -> None:
    await seed("s1").session()
    answer = await offline.get(path, headers=ADMIN)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "bad_request" and answer.json()["status"] == 422
