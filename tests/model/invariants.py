"""What must hold of a session's rows after anything whatsoever."""

import json
from collections import defaultdict
from typing import Any

from temporalio.service import RPCError

from tests.model.transcripts import check_transcript
from tests.system import System
from workflows.model.state import Head


async def check_rows(system: System, session: str, *, quiet: bool = True) -> None:
    """Fails where a session's rows, all of one moment, tell no story. `quiet`: nothing is under way, so the workflow must agree with them."""
    async with system.conn.transaction(isolation="repeatable_read"):
        row = await system.conn.fetchrow("select * from sessions where tenant = $1 and session_id = $2", system.tenant, session)
        if row is None:
            return
        uid = row["session_uid"]
        turns = await system.conn.fetch("select * from turns where session_uid = $1 order by number", uid)
        await _tree(system, uid, row)
        await _calls(system, uid)
        await check_transcript(system, uid)
        await _events(system, uid, row, turns)
        assert [turn["number"] for turn in turns] == list(range(1, row["turn_number"] + 1)), "turn numbers have gaps"
        assert sum(turn["state"] == "running" for turn in turns) <= (0 if quiet else 1), "live turns"
        assert not quiet or not await system.conn.fetchval("select count(*) from live_deltas where session_uid = $1", uid)
    if quiet:
        await _agrees(system, session, row)


async def _tree(system: System, uid: Any, session: Any) -> None:
    rows = await system.conn.fetch("select * from messages where session_uid = $1", uid)
    by_id = {row["id"]: row for row in rows}
    assert sum(row["parent_id"] is None for row in rows) <= 1, "several roots"
    assert session["message_count"] == len(rows), "message_count"
    assert session["active_leaf_id"] in by_id or not rows, "the active leaf is no message"
    text = await _by_message(
        system,
        uid,
        "select message_id, string_agg(text, '' order by position) from segments where session_uid = $1 and kind = 'text' group by 1",
    )
    recorded = await _by_message(
        system, uid, "select message_id, count(*) from calls where session_uid = $1 and state = 'recorded' group by 1"
    )
    steered = await _by_message(
        system, uid, "select message_id, count(*) from steering where session_uid = $1 and status = 'delivered' group by 1"
    )
    live = await system.conn.fetchval("select message_id from turns where session_uid = $1 and state = 'running'", uid)
    for row in rows:
        if row["id"] == live:
            continue
        assert row["settled"], f"{row['id']} is not settled"
        above = by_id[row["parent_id"]] if row["parent_id"] else None
        before = tuple(above[name] for name in COUNTS) if above else (0, 0, 0)
        if row["role"] == "assistant":
            assert row["content"] == text.get(row["id"], ""), f"content of {row['id']}"
            said, given = int(row["content"] != ""), steered.get(row["id"], 0)
            own = (said + recorded.get(row["id"], 0) + given, given, said)
        else:
            own = (1, int(row["role"] == "user"), 0)
            assert row["said_at"] == row["created_at"], f"time of {row['id']}"
        counted = tuple(one + two for one, two in zip(before, own, strict=True))
        assert tuple(row[name] for name in COUNTS) == counted, f"counts of {row['id']} ({row['role']}): {counted}"


async def _by_message(system: System, uid: Any, statement: str) -> dict[str, Any]:
    return {row[0]: row[1] for row in await system.conn.fetch(statement, uid)}


COUNTS = ("count_all", "count_user", "count_assistant")


async def _calls(system: System, uid: Any) -> None:
    batches = await system.conn.fetch("select * from host_batches where session_uid = $1 and state = 'open'", uid)
    assert len(batches) <= 1, "several open batches"
    asked = {(batch["turn_id"], batch["step"]) for batch in batches}
    calls = await system.conn.fetch("select * from calls where session_uid = $1", uid)
    live = await system.conn.fetchval("select turn_id from turns where session_uid = $1 and state = 'running'", uid)
    for call in calls:
        if call["state"] == "open":
            assert (call["turn_id"], call["step"]) in asked or call["turn_id"] == live, f"nobody waits for the open call {call['call_id']}"
    for batch in batches:
        waits = [call for call in calls if (call["turn_id"], call["step"], call["state"]) == (batch["turn_id"], batch["step"], "open")]
        assert waits, "an open batch waits for nothing"


async def _events(system: System, uid: Any, session: Any, turns: list[Any]) -> None:
    rows = await system.conn.fetch("select seq, turn_id, type, data from events where session_uid = $1 order by seq", uid)
    assert [row["seq"] for row in rows] == list(range(1, session["cursor"] + 1)), "events have gaps"
    by_turn: dict[str, list[Any]] = defaultdict(list)
    for row in rows:
        if row["turn_id"] and row["type"] != "text":
            by_turn[row["turn_id"]].append(row)
    assert set(by_turn) == {turn["turn_id"] for turn in turns}, "events of a turn that is not there"
    for turn in turns:
        _one_story(turn, by_turn[turn["turn_id"]])


def _one_story(turn: Any, events: list[Any]) -> None:
    """Per attempt: turn.started first, one turn.final, turn.error exactly if it failed, turn.completed last (R76)."""
    attempts: list[list[Any]] = []
    for event in events:
        if event["type"] == "turn.started":
            attempts.append([])
        assert attempts, f"{event['type']} before turn.started"
        attempts[-1].append(event)
    assert len(attempts) == turn["attempt"], f"{turn['turn_id']} has {len(attempts)} beginnings and {turn['attempt']} attempts"
    for number, attempt in enumerate(attempts, 1):
        types = [event["type"] for event in attempt]
        if number == turn["attempt"] and turn["state"] == "running":
            assert not set(types) & {"turn.final", "turn.completed"}
            continue
        finals = [json.loads(event["data"]) for event in attempt if event["type"] == "turn.final"]
        assert len(finals) == 1 and types[-1] == "turn.completed" and types.count("turn.completed") == 1, types
        failed = finals[0]["error"] is not None
        assert types[-3 if failed else -2] == "turn.final" and types.count("turn.error") == int(failed), types
        assert ("host_action.pending" in types) == (finals[0]["pending_tool_call"] is not None), types
    if turn["final"]:
        assert json.loads(turn["final"])["attempt"] == turn["attempt"]


async def _agrees(system: System, session: str, row: Any) -> None:
    """The workflow stands where the rows say."""
    pending = await system.conn.fetchval("select count(*) from host_batches where session_uid = $1 and state = 'open'", row["session_uid"])

    async def stands() -> tuple[Any, ...]:
        head: Head = await system.workflow(session).query("head", result_type=Head)
        return head.session_uid, head.revision, head.leaf_id, head.turn_number, head.owner, int(head.batch is not None)

    wanted = (str(row["session_uid"]), row["revision"], row["active_leaf_id"], row["turn_number"], row["owner"], pending)
    found: list[tuple[Any, ...]] = [()]

    async def same() -> bool:
        try:
            found[0] = await stands()
        except RPCError:  # a run that has just begun can't be asked yet
            return False
        return found[0] == wanted

    try:
        await system.until(same)
    except TimeoutError:
        raise AssertionError(f"the workflow says {found[0]}, the rows {wanted}") from None
