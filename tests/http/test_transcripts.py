"""Transcripts: what was said on one path, by ordinal, time and speaker."""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any

import httpx

from tests.http.seeding import WHOLE_BRANCH, Seed, after
from tests.model.invariants import check_rows
from tests.models import Behaviour, calls, raises, says, script, waits
from tests.system import System, running_system

Begin = Callable[[str], Seed]
ADMIN = {"x-test-principal": "root", "x-test-roles": "admin"}
BOB = {"x-test-principal": "bob"}
PATH = "/api/sessions/s1/transcript"


async def conversation(seed: Begin) -> Seed:
    """u1, a1 (two calls, steering between them, text), a card, u2, a2 (no text), u3, a3; and a branch u2b, a2b behind the card."""
    s = await seed("s1").session(owner="alice", active_leaf_id="a3", revision=9)
    counts = [(1, 1, 0), (5, 2, 1), (6, 2, 1), (7, 3, 1), (7, 3, 1), (8, 4, 1), (9, 4, 2)]
    async with s.conn.transaction():
        await s.branch(0, 6, [0], [WHOLE_BRANCH])
        await s.branch(1, 4, [0, 1], [2, WHOLE_BRANCH])
        for depth, (id, role) in enumerate(zip(("u1", "a1", "k1", "u2", "a2", "u3", "a3"), "uahuaua", strict=True)):
            role = {"u": "user", "a": "assistant", "h": "host"}[role]
            named = dict(zip(("count_all", "count_user", "count_assistant"), counts[depth], strict=True))
            content = "" if id == "a2" else f"content of {id}"
            parent = ("u1", "a1", "k1", "u2", "a2", "u3")[depth - 1] if depth else None
            await s.message(id, parent, depth, role=role, said_at=after(10 * depth), content=content, **named)
        await s.message("u2b", "k1", 3, branch=1, said_at=after(60), count_all=7, count_user=3, count_assistant=1)
        await s.message("a2b", "u2b", 4, branch=1, role="assistant", said_at=after(70), count_all=8, count_user=3, count_assistant=2)
    done: dict[str, Any] = {"state": "recorded"}
    await s.call("c1", "a1", segment=0, outcome="success", output='"caf\\u00e9"', recorded_at=after(3), **done)
    await s.call("c2", "a1", segment=1, outcome="failed", status="failed", output='{"a": 1.50}', recorded_at=after(5), **done)
    await s.steering("g1", "a1", before_segment=1, delivered_at=after(4))
    return s


async def read(client: httpx.AsyncClient, query: str = "", headers: Any = ADMIN) -> list[dict[str, Any]]:
    answer = await client.get(f"{PATH}?{query}", headers=headers)
    assert answer.status_code == 200, answer.text
    assert (answer.json()["session_id"], answer.json()["revision"]) == ("s1", 9)
    return answer.json()["messages"]  # type: ignore[no-any-return]


def ids(rows: list[dict[str, Any]]) -> list[str]:
    return [row.get("call_id", row["message_id"]) for row in rows]


ALL = ["u1", "c1", "g1", "c2", "a1", "k1", "u2", "u3", "a3"]


async def test_s09_every_row_is_counted_and_a_speaker_counts_its_own(offline: httpx.AsyncClient, seed: Begin) -> None:
    await conversation(seed)
    rows = await read(offline)
    assert ids(rows) == ALL
    assert [row["role"] for row in rows] == ["user", "tool", "user", "tool", "assistant", "host", "user", "user", "assistant"]
    assert [row["index"] for row in rows] == list(range(9))
    tool = {"index": 1, "role": "tool", "content": "café", "message_id": "a1", "timestamp": "2026-03-01T12:00:03Z"}
    assert rows[1] == tool | {"tool_name": "open_page", "call_id": "c1"}
    assert (rows[3]["content"], rows[3]["outcome"], rows[3]["status"]) == ('{"a": 1.50}', "failed", "failed")
    assert rows[0] == {"index": 0, "role": "user", "content": "content of u1", "message_id": "u1", "timestamp": "2026-03-01T12:00:00Z"}
    said = await read(offline, "speaker=user")
    assert [(row["index"], row["message_id"]) for row in said] == [(0, "u1"), (1, "g1"), (2, "u2"), (3, "u3")]
    assert ids(await read(offline, "speaker=assistant")) == ["a1", "a3"]


async def test_s05_s06_s07_ordinals_from_either_end(offline: httpx.AsyncClient, seed: Begin) -> None:
    await conversation(seed)
    for speaker in ("all", "user", "assistant"):
        rows = await read(offline, f"speaker={speaker}")
        for number, row in enumerate(rows):
            assert await read(offline, f"speaker={speaker}&index={number}") == [row]
            assert await read(offline, f"speaker={speaker}&index={number - len(rows)}&limit=7") == [row]
        for beyond in (len(rows), -len(rows) - 1, 10**30, -(10**30)):
            assert await read(offline, f"speaker={speaker}&index={beyond}") == []


async def test_s09_another_path_by_its_leaf(offline: httpx.AsyncClient, seed: Begin) -> None:
    await conversation(seed)
    branch = [*ALL[:6], "u2b", "a2b"]
    assert ids(await read(offline, "leaf_id=a2b")) == branch
    for number, name in enumerate(branch):
        assert ids(await read(offline, f"leaf_id=a2b&index={number}")) == [name]
    assert ids(await read(offline, "leaf_id=a2b&speaker=assistant&index=-1")) == ["a2b"]
    assert ids(await read(offline, "leaf_id=a1&index=-1")) == ["a1"]
    assert ids(await read(offline, "leaf_id=a1")) == ALL[:5]
    assert ids(await read(offline, "leaf_id=a2b&from=2026-03-01T12:00:50Z")) == ["u2b", "a2b"]
    for query in ("leaf_id=nope", "leaf_id=nope&index=0", "leaf_id=nope&from=2026-03-01T12:00:50Z"):
        absent = await offline.get(f"{PATH}?{query}", headers=ADMIN)
        assert (absent.status_code, absent.json()["detail"]) == (404, "there is no such message"), query


async def test_s09_a_time_finds_rows_of_its_path_only(offline: httpx.AsyncClient, seed: Begin) -> None:
    """A time that holds every row answers what no time answers, whichever path it is: nothing of its siblings."""
    await conversation(seed)
    for leaf in ("u1", "a1", "k1", "u2", "a3", "u2b", "a2b"):
        for speaker in ("all", "user", "assistant"):
            rows = await read(offline, f"leaf_id={leaf}&speaker={speaker}")
            for times in ("from=2026-03-01T12:00:00Z", "to=2026-03-01T13:00:00Z"):
                assert await read(offline, f"leaf_id={leaf}&speaker={speaker}&{times}") == rows, (leaf, speaker, times)


async def test_s13_speaker_then_time_then_limit(offline: httpx.AsyncClient, seed: Begin) -> None:
    await conversation(seed)
    assert ids(await read(offline, "limit=2")) == ["u1", "c1"]
    assert ids(await read(offline, "limit=3&speaker=user")) == ["u1", "g1", "u2"]
    assert ids(await read(offline, f"limit={10**30}")) == ALL
    for query in ("limit=0", "limit=0&index=0", "limit=0&from=2026-03-01T12:00:00Z"):
        assert await read(offline, query) == []
    late = await read(offline, "from=2026-03-01T12:00:03Z&to=2026-03-01T12:00:10Z")
    assert [(row["index"], row.get("call_id", row["message_id"])) for row in late] == [(1, "c1"), (2, "g1"), (3, "c2"), (4, "a1")]
    assert ids(await read(offline, "from=2026-03-01T12:00:03Z&limit=2")) == ["c1", "g1"]
    own = await read(offline, "to=2026-03-01T12:00:30Z&speaker=user")
    assert [(row["index"], row["message_id"]) for row in own] == [(0, "u1"), (1, "g1"), (2, "u2")]
    assert await read(offline, "from=2026-03-01T12:00:31Z&to=2026-03-01T12:00:30Z") == []


async def test_s14_a_plus_that_was_not_escaped_is_understood(offline: httpx.AsyncClient, seed: Begin) -> None:
    await conversation(seed)
    for offset in ("%2B01:00", "+01:00", "%2B0100", " 01:00", "+0100"):
        for seconds in ("20", "20.000"):
            found = await read(offline, f"from=2026-03-01T13:00:{seconds}{offset}&to=2026-03-01T13:00:30{offset}")
            assert ids(found) == ["k1", "u2"], offset


BAD = """index=0&from=2026-03-01T12:00:00Z, index=-1&to=2026-03-01T12:00:00Z, index=x, index=1.5, index=, limit=-1, limit=x, speaker=tool,
    speaker=, from=2026-03-01T12:00:00, to=2026-03-01, from=1772366400, to=yesterday, from=, from=0001-01-01T00:00:00%2B14:00, leaf_id=a%20b"""


async def test_s08_s14_bad_questions_are_422_whether_there_is_a_session_or_not(offline: httpx.AsyncClient, seed: Begin) -> None:
    await seed("s1").session(owner="alice")
    for query in map(str.strip, BAD.split(",")):
        for session in ("s1", "absent"):
            answer = await offline.get(f"/api/sessions/{session}/transcript?{query}", headers=BOB)
            assert (answer.status_code, answer.json()["code"]) == (422, "bad_request"), query


async def test_s19_absent_and_foreign_are_the_same_404(offline: httpx.AsyncClient, seed: Begin) -> None:
    await conversation(seed)
    foreign, absent = [await offline.get(f"/api/sessions/{id}/transcript?index=0", headers=BOB) for id in ("s1", "absent")]
    assert foreign.status_code == absent.status_code == 404
    assert foreign.content == absent.content
    assert len(await read(offline, headers={"x-test-principal": "alice"})) == 9


async def test_a_session_without_messages_has_an_empty_transcript(offline: httpx.AsyncClient, seed: Begin) -> None:
    await seed("s1").session(revision=9)
    for query in ("", "index=0", "from=2026-03-01T12:00:00Z"):
        assert await read(offline, query) == []


async def transcript(system: System, query: str = "") -> list[dict[str, Any]]:
    return (await system.get(f"/sessions/s1/transcript?{query}"))["messages"]  # type: ignore[no-any-return]


def said(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(row["role"], row["content"]) for row in rows]


def spoken(go_on: asyncio.Event) -> list[Behaviour]:
    """Two server tools, one more, text that waits, a batch of two for the host, and the end."""
    return [
        calls(("c1", "add", {"a": 1, "b": 2}), ("c2", "broken", {}), text="Let me see. "),
        calls(("c3", "wait_for", {"seconds": 0})),
        waits(go_on, "Three", "."),
        calls(("h1", "open_page", {"url": "u"}), ("h2", "ask_user", {"question": "?"})),
        says("Thanks."),
    ]


async def test_s04_s05_s06_s15_a_conversation_is_read_back_as_it_went(database_url: str, temporal_address: str) -> None:
    go_on = asyncio.Event()
    scripted = script(*spoken(go_on))
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        await system.submit("s1", "How many?")
        await system.until(lambda: len(scripted.requests) == 3)
        live = await transcript(system)
        assert [row["role"] for row in live] == ["user", "tool", "tool", "tool", "assistant"]
        assert live[-1]["content"] == "Let me see. " and (await transcript(system, "index=-1")) == live[-1:]
        steer = {"session_id": "s1", "content": "In words.", "message_type": "steering", "id": "g1"}
        assert (await system.post("/chat", steer)).status_code == 202
        go_on.set()
        await system.until(lambda: len(scripted.requests) == 4)
        asked = await system.until(lambda: _pending(system))
        assert asked == "h1"
        await system.resume("s1", "h1", {"ok": True})
        assert (await system.resume("s1", "h2", "denied", tool_outcome="denied")).json()["content"] == "Thanks."
        await system.post("/sessions/s1/messages", {"content": "A card", "segments": [{"kind": "component", "type": "x", "data": 1}]})
        rows = await transcript(system, "")
        assert said(rows) == [
            ("user", "How many?"),
            ("tool", "3"),
            ("tool", rows[2]["content"]),
            ("tool", "waited"),
            ("user", "In words."),
            ("tool", '{"ok":true}'),
            ("tool", "denied"),
            ("assistant", "Let me see. Three.Thanks."),
            ("host", "A card"),
        ]
        assert "out of order" in rows[2]["content"] and rows[2]["outcome"] == "failed" and rows[6]["status"] == "denied"
        times = [datetime.fromisoformat(row["timestamp"]) for row in rows]
        assert times[0] < times[1] <= times[3] < times[4] <= times[5] < times[7] < times[8]
        for number, row in enumerate(rows):
            assert (await system.get(f"/sessions/s1/transcript?index={number}", api=1))["messages"] == [row]
        one = await transcript(system, f"from={rows[4]['timestamp']}&to={rows[4]['timestamp']}")
        assert one == [rows[4]]
        await check_rows(system, "s1")


async def _pending(system: System) -> Any:
    session = (await system.http.get("/api/sessions/s1")).json()
    return session["pending_action"] and session["pending_action"]["tool_call_id"]


async def test_s09_counts_stay_right_below_a_message_whose_calls_end_late(database_url: str, temporal_address: str) -> None:
    """Rows of another tool show open calls in the middle of the tree; repair ends them, and everything below counts them."""
    scripted = script(calls(("h1", "open_page", {"url": "u"}), text="Wait. "), says("One."), says("Two."), raises(RuntimeError("x"), "Th"))
    async with running_system(database_url, temporal_address, scripted) as system:
        first = await system.chat("s1", "Open it.")
        await system.chat("s1", "Never mind.")
        await system.chat("s1", "Or else?", parent_id=first["message_id"])
        await system.conn.execute("update calls set state = 'open', outcome = null, status = null, recorded_at = null")
        await system.conn.execute("update messages set count_all = count_all - 1 where depth > 0")
        await check_before(system)
        assert (await system.post("/sessions/s1/repair")).json()["repaired_calls"] == ["h1"]
        await check_rows(system, "s1")
        assert said(await transcript(system))[1:3] == [("tool", ""), ("assistant", "Wait. ")]
        assert (await transcript(system, "index=1"))[0]["status"] == "unknown"
        assert said(await transcript(system, "index=-2")) == [("user", "Or else?")]
        failed = await system.chat("s1", "And now?")
        assert failed["error"] and said(await transcript(system, "index=-1")) == [("assistant", "Th")]
        scripted.then(says("There."))
        await system.post(f"/sessions/s1/turns/{failed['turn_id']}/retry")
        assert said(await transcript(system, "speaker=assistant&index=-1")) == [("assistant", "There.")]
        await check_rows(system, "s1")


async def check_before(system: System) -> None:
    assert said(await transcript(system))[1:] == [("assistant", "Wait. "), ("user", "Or else?"), ("assistant", "Two.")]
