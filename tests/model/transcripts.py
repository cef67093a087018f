"""What the transcript of a session's active path must be, from its rows; and whether it is read so."""

from collections import defaultdict
from typing import Any

from activities.db.queries import load_queries
from tests.system import System

sql = load_queries()
SPEAKERS = {"all": ("user", "assistant", "tool", "host"), "user": ("user",), "assistant": ("assistant",)}

Said = tuple[str, str, str | None]
"""Role, id (of a tool's row: the call's) and content (of a tool's row: None)."""


async def check_transcript(system: System, uid: Any) -> None:
    """Fails where the transcript, whole or by ordinals from either end, is not what the rows of one moment say."""
    async with system.conn.transaction(isolation="repeatable_read"):
        leaf = await system.conn.fetchval("select active_leaf_id from sessions where session_uid = $1", uid)
        if leaf is None:
            return
        path = await said_on_path(system.conn, uid, leaf)
        for speaker, roles in SPEAKERS.items():
            wanted = [row for row in path if row[0] in roles]
            where = {"session_uid": uid, "leaf_id": leaf, "speaker": speaker}
            read = [_said(row) async for row in sql.transcript_slice(system.conn, **where, first=0, last=2**31 - 1)]
            assert read == wanted, f"{speaker}: {read} is not {wanted}"
            for ordinal in {0, len(wanted) // 2, -1, -len(wanted), len(wanted), -len(wanted) - 1}:
                row = await sql.transcript_row(system.conn, **where, ordinal=ordinal)
                found = [] if row is None else [(row["index"], _said(row))]
                place = ordinal if ordinal >= 0 else len(wanted) + ordinal
                right = [(place, wanted[place])] if 0 <= place < len(wanted) else []
                assert found == right, f"{speaker} {ordinal}: {found} is not {right}"


async def said_on_path(conn: Any, uid: Any, leaf: str | None) -> list[Said]:
    """The rows of a path, by walking it: nothing here knows of branches and counts."""
    messages = {row["id"]: row for row in await conn.fetch("select * from messages where session_uid = $1", uid)}
    calls: dict[str, list[Any]] = defaultdict(list)
    for call in await conn.fetch("select * from calls where session_uid = $1 and state = 'recorded' order by segment, position", uid):
        calls[call["message_id"]].append(call)
    steering: dict[str, list[Any]] = defaultdict(list)
    for words in await conn.fetch(
        "select * from steering where session_uid = $1 and status = 'delivered' order by before_segment, number", uid
    ):
        steering[words["message_id"]].append(words)
    path: list[Any] = []
    while leaf is not None:
        path.insert(0, messages[leaf])
        leaf = messages[leaf]["parent_id"]
    return [row for message in path for row in _of_message(message, calls[message["id"]], steering[message["id"]])]


def _of_message(message: Any, calls: list[Any], steering: list[Any]) -> list[Said]:
    if message["role"] != "assistant":
        return [(message["role"], message["id"], message["content"])]
    rows: list[Said] = []
    told = [*steering]
    for call in calls:
        while told and told[0]["before_segment"] <= call["segment"]:
            rows.append(("user", told[0]["id"], told.pop(0)["content"]))
        rows.append(("tool", call["call_id"], None))
    rows += [("user", words["id"], words["content"]) for words in told]
    return rows + ([("assistant", message["id"], message["content"])] if message["content"] else [])


def _said(row: Any) -> Said:
    return row["role"], row["id"], None if row["role"] == "tool" else row["content"]
