"""Cancels, messages and results that come in the middle of a turn, and writes that fail in the middle of one."""

import asyncio
import json
import time

import asyncpg
import pytest
from pydantic_ai.messages import ModelMessage

from tests.models import calls, hangs, says, script, waits
from tests.services import PATIENCE_SECONDS
from tests.system import Answer, System, running_system


def order(events: list[Answer]) -> list[tuple[str, str | None]]:
    return [(event["type"], event["turn_id"]) for event in events]


def returned(request: list[ModelMessage]) -> dict[str, str]:
    """The tool results of a request, by call id."""
    return {part.tool_call_id: part.outcome for message in request for part in message.parts if part.part_kind == "tool-return"}


async def streaming(system: System, text: str) -> None:
    """Waits until a reader could have seen this text."""
    await system.until(lambda: system.conn.fetchval("select string_agg(text, '' order by position) = $1 from live_deltas", text))


async def cancel(system: System, session: str, **body: str) -> Answer:
    answer = await system.post(f"/sessions/{session}/cancel", body)
    assert answer.status_code == 200, answer.text
    cancelled: Answer = answer.json()
    return cancelled


async def test_r91_l21_a_cancelled_answer_keeps_its_text_and_ends_once(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(hangs("Once ", "upon"), says("Gladly."))) as system:
        sent = asyncio.create_task(system.chat("s1"))
        await streaming(system, "Once upon")
        began = time.monotonic()
        assert (await cancel(system, "s1"))["cancel_requested"] is True
        turn = await sent
        assert time.monotonic() - began < 25
        assert (turn["content"], turn["error"]["type"], turn["error"]["retry_allowed"]) == ("Once upon", "cancelled", False)
        assert await cancel(system, "s1") == {"cancel_requested": False, "turn_id": None}
        assert (await system.messages("s1"))[1]["segments"] == [{"kind": "text", "text": "Once upon"}]
        events = order(await system.events("s1"))
        assert [kind for kind, _ in events].count("turn.final") == 1
        heard = (await system.heard(turn)).error
        assert heard and heard.type == "cancelled"
        assert await system.conn.fetchval("select state from turns where turn_id = $1", turn["turn_id"]) == "cancelled"
        assert (await system.workflow("s1").describe()).status.name == "RUNNING"  # type: ignore[union-attr]
        assert (await system.chat("s1", "go on"))["content"] == "Gladly."


async def test_r92_a_turn_that_was_cancelled_before_it_came_asks_no_model(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        assert (await cancel(system, "s1", turn_id="later"))["cancel_requested"] is True
        turn = await system.chat("s1", "too late", turn_id="later")
        assert (turn["content"], turn["error"]["type"]) == ("", "cancelled")
        assert len(system.script.requests) == 1
        row = (await system.messages("s1"))[-1]
        assert (row["id"], row["content"], row["segments"], row["error"]) == (turn["message_id"], "", [], turn["error"])
        assert (await system.chat("s1", "once more"))["content"] == "hello"
        assert [part.content for message in system.script.requests[-1] for part in message.parts if part.part_kind == "user-prompt"] == [
            "hello",
            "too late",
            "once more",
        ]


async def test_r95_a_finished_tool_keeps_its_result_and_a_running_one_is_interrupted(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "add", {"a": 1, "b": 2}), ("c2", "wait_for", {"seconds": 60})), says("Fine."))
    async with running_system(database_url, temporal_address, scripted) as system:
        sent = asyncio.create_task(system.chat("s1"))
        await system.until(lambda: system.conn.fetchval("select state = 'recorded' from calls where call_id = 'c1'"))
        await cancel(system, "s1")
        assert (await sent)["error"]["type"] == "cancelled"
        done, cut = (await system.messages("s1"))[1]["segments"][0]["tools"]
        assert (done["output"], done.get("outcome")) == (3, None)
        assert (cut["outcome"], cut["status"]) == ("interrupted", "cancelled")
        await system.chat("s1", "and?")
        assert returned(scripted.requests[-1]) == {"c1": "success", "c2": "interrupted"}


async def test_r72_a_message_cancels_the_live_turn_and_enters_the_tree_after_it(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(hangs("Half"), says("Whole."))) as system:
        sent = asyncio.create_task(system.chat("s1", "one", id="m1"))
        await streaming(system, "Half")
        second = await system.chat("s1", "two", id="m2")
        first = await sent
        assert (first["content"], first["error"]["type"], second["content"]) == ("Half", "cancelled", "Whole.")
        events = order(await system.events("s1"))
        assert events.index(("turn.completed", first["turn_id"])) < events.index(("turn.started", second["turn_id"]))
        rows = await system.messages("s1")
        assert [(row["id"], row["parent_id"]) for row in rows][2] == ("m2", first["message_id"])
        assert [row["content"] for row in rows] == ["one", "Half", "two", "Whole."]


async def test_r73_a_result_that_comes_before_the_turn_has_ended_waits_for_it(database_url: str, temporal_address: str) -> None:
    """The host sees the call in the stream and is quicker than the server tool beside it."""
    scripted = script(calls(("c1", "wait_for", {"seconds": 1.0}), ("c2", "open_page", {"url": "u"})), says("Open."))
    async with running_system(database_url, temporal_address, scripted) as system:
        sent = asyncio.create_task(system.chat("s1"))
        await system.until(lambda: system.conn.fetchval("select true from calls where call_id = 'c2'"))
        early = await system.resume("s1", "c2")
        first = await sent
        assert (first["error"], first["pending_tool_call"]["call_id"]) == (None, "c2")
        assert (early.status_code, early.json()["content"]) == (200, "Open.")
        assert early.json()["message_id"] == first["message_id"]
        assert returned(scripted.requests[-1]) == {"c1": "success", "c2": "success"}
        assert len(scripted.requests) == 2


async def test_r75_sessions_run_side_by_side_and_each_one_turn_at_a_time(database_url: str, temporal_address: str) -> None:
    together = asyncio.Event()
    async with running_system(database_url, temporal_address, script(waits(together, "a", "b"))) as system:
        sessions = [f"s{number}" for number in range(8)]
        sent = [asyncio.create_task(system.chat(session)) for session in sessions]
        await system.until(lambda: len(system.script.requests) == len(sessions))
        sent += [asyncio.create_task(system.chat(session, "later", when_busy="enqueue")) for session in sessions]
        await asyncio.gather(*(system.accepted(session, 2) for session in sessions))
        running = await system.conn.fetch("select count(*) from turns where state = 'running' group by session_uid")
        assert [row["count"] for row in running] == [1] * len(sessions)
        together.set()
        assert {turn["content"] for turn in await asyncio.gather(*sent)} == {"ab"}


FAILING = """
create sequence failures;
create function fail_some() returns trigger language plpgsql security definer as $$
begin
  if nextval('failures') <= {times} then raise exception 'no space left' using errcode = '53100'; end if;
  return new;
end $$;
create trigger fails before {event} for each row {when} execute function fail_some();
"""


async def failing(conn: asyncpg.Connection, event: str, *, when: str = "", times: int = 3) -> None:
    """The next writes of this kind fail as on a full disk, and then work."""
    await conn.execute(FAILING.format(event=event, times=times, when=f"when ({when})" if when else ""))


async def test_r97_a_cancel_whose_write_fails_is_written_once_it_can_be(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(hangs("Kept"))) as system:
        sent = asyncio.create_task(system.chat("s1"))
        await streaming(system, "Kept")
        await failing(system.conn, "update on turns", when="new.state = 'cancelled'")
        await cancel(system, "s1")
        turn = await sent
        assert (turn["content"], turn["error"]["type"]) == ("Kept", "cancelled")
        assert await system.conn.fetchval("select last_value from failures") == 4
        kinds = [kind for kind, _ in order(await system.events("s1"))]
        assert [kinds.count(kind) for kind in ("turn.final", "turn.error", "turn.completed")] == [1, 1, 1]
        assert [row["content"] for row in await system.messages("s1")] == ["hello", "Kept"]


async def test_r26_an_opening_that_fails_is_repeated_and_binds_as_the_first_message_said(database_url: str, temporal_address: str) -> None:
    alice = {"x-test-principal": "alice"}
    async with running_system(database_url, temporal_address, script(says("hi"))) as system:
        await failing(system.conn, "insert on messages", times=4)
        body = {"session_id": "s1", "content": "one", "subject": "order-7", "profile": "assistant"}
        first = asyncio.create_task(system.post("/chat", body, headers=alice))
        await system.until(lambda: system.conn.fetchval("select is_called from failures"))
        other = await system.post("/chat", {**body, "content": "two", "subject": "order-8"}, headers=alice)
        stranger = await system.post("/chat", body, headers={"x-test-principal": "bob"})
        assert (other.status_code, other.json()["code"], stranger.status_code) == (409, "binding_conflict", 404)
        assert (await first).json()["content"] == "hi"
        rows = await system.conn.fetch("select owner, profile, subject, message_count from sessions")
        assert [tuple(row) for row in rows] == [("alice", "assistant", "order-7", 2)]
        assert await system.conn.fetchval("select count(*) from messages where content = 'one'") == 1


async def test_s33_an_end_is_not_announced_before_it_is_committed(database_url: str, temporal_address: str) -> None:
    """Commits take long here; who hears of the end reads it at once."""
    slow = """
        create function slow_commit() returns trigger language plpgsql as $$ begin perform pg_sleep(0.4); return null; end $$;
        create constraint trigger slow after update on turns deferrable initially deferred
          for each row when (new.state <> 'running') execute function slow_commit();
    """
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    async with running_system(database_url, temporal_address, script(says("hi"))) as system:
        await system.conn.execute(slow)
        listener = await asyncpg.connect(database_url)
        await listener.add_listener("outlast", lambda *note: heard.put_nowait(json.loads(note[3]).get("e")))
        sent = asyncio.create_task(system.chat("s1"))
        ended = None
        while ended is None:
            seq = await asyncio.wait_for(heard.get(), PATIENCE_SECONDS)
            ended = await listener.fetchrow(
                "select t.state, s.revision from events e join turns t using (session_uid) join sessions s using (session_uid) "
                "where e.type = 'turn.completed' and e.seq <= $1",
                seq or 0,
            )
            if ended is None:
                state = await listener.fetchval("select state from turns")
                assert state in (None, "running")
        assert ended["state"] == "completed"
        assert (await sent)["revision"] == ended["revision"]
        await listener.close()


@pytest.mark.parametrize("when", ["before", "after"])
async def test_l21_cancel_and_end_at_the_same_moment_leave_one_ending(database_url: str, temporal_address: str, when: str) -> None:
    """The closing transaction and the cancel cross: whichever is first, rows and workflow agree."""
    go_on = asyncio.Event()
    async with running_system(database_url, temporal_address, script(waits(go_on, "a", "b"), says("next"))) as system:
        sent = asyncio.create_task(system.chat("s1"))
        await streaming(system, "a")
        if when == "before":
            asked = asyncio.create_task(cancel(system, "s1"))
            go_on.set()
        else:
            go_on.set()
            asked = asyncio.create_task(cancel(system, "s1"))
        turn, _ = await sent, await asked
        state = await system.conn.fetchval("select state from turns where turn_id = $1", turn["turn_id"])
        head = await system.until(lambda: _idle_head(system))
        told = head["last_turn"].get("error")
        assert state == ("cancelled" if turn["error"] else "completed")
        assert (told or {}).get("type") == (turn["error"] or {}).get("type")
        assert (await system.chat("s1", "go on"))["content"] == "next"


async def _idle_head(system: System) -> Answer | None:
    head: Answer = await system.workflow("s1").query("head")
    return head if head.get("last_turn") else None
