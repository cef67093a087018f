"""Ways in which rows may be wrong, done to a session that went through everything; each with words that say what is found of it."""

from typing import NamedTuple

import asyncpg


class Damage(NamedTuple):
    """A statement about session $1, and what a verification says of it."""

    name: str
    statement: str
    found: str


DAMAGES = (
    Damage("a lost message", "delete from messages where session_uid = $1 and role = 'host'", "lost row"),
    Damage(
        "a doubled message",
        "with b as (insert into branches select session_uid, 90, depth, array[branch, 90], array[depth - 1, 2147483647] from messages "
        "where session_uid = $1 and content = 'branch') "
        "insert into messages select (jsonb_populate_record(m, '{\"id\": \"twice\", \"branch\": 90}')).* from messages m "
        "where session_uid = $1 and content = 'branch'",
        "row that no history made",
    ),
    Damage(
        "a wrong parent",
        "update messages m set parent_id = (select id from messages o where o.session_uid = $1 and o.depth = m.depth and o.id <> m.parent_id limit 1) "
        "where session_uid = $1 and content = 'do it'",
        "wrong parent_id",
    ),
    Damage("a wrong leaf", "update sessions set active_leaf_id = (select id from messages where session_uid = $1 and depth = 0) where session_uid = $1", "wrong active_leaf_id"),
    Damage("a leaf that is not there", "update sessions set active_leaf_id = 'nowhere' where session_uid = $1", "leaf that is not there"),
    Damage("a missing result", "delete from calls where session_uid = $1 and call_id = 'c1'", "call of the model that is not there"),
    Damage(
        "a result that the model was not told",
        "delete from model_messages where session_uid = $1 and kind = 'request' and body::text like '%c1%tool-return%'",
        "gap in what the model was given",
    ),
    Damage("wrong counts", "update messages set count_all = count_all + 1 where session_uid = $1 and content = 'go on'", "wrong counts"),
    Damage("other words", "update segments set text = 'I never said that.' where session_uid = $1 and text = 'Fine.'", "content that is not the text of its segments"),
    Damage(
        "an open call and nothing pending (R108)",
        "update calls set state = 'open', outcome = null, status = null, output = null, duration_ms = null, recorded_at = null "
        "where session_uid = $1 and call_id = 'h3'",
        "open call with nothing pending",
    ),
    Damage(
        "a pending action whose call has a result (R109)",
        "update calls set state = 'recorded', outcome = 'success', output = '1', recorded_at = requested_at where session_uid = $1 and state = 'open'",
        "pending action whose call has a result",
    ),
    Damage("a lost turn", "delete from turns where session_uid = $1 and number = 2", "message without its turn"),
    Damage("lost steering that waits", "delete from steering where session_uid = $1 and id = 'queued-words'", "lost row"),
    Damage("steering that was given twice", "update steering set status = 'pending', message_id = null, turn_id = null, before_segment = null, delivered_at = null "
           "where session_uid = $1 and id = 'be-brief'", "wrong status"),
    Damage("a wrong tip", "update branches set tip_depth = tip_depth + 7 where session_uid = $1 and branch = 0", "branch with a wrong tip"),
    Damage("a wrong depth", "update messages set depth = depth + 1000 where session_uid = $1 and content = 'go on'", "wrong depth"),
    Damage("a lost end", "update turns set final = null, state = 'running', ended_at = null where session_uid = $1 and number = 1", "wrong state"),
)  # fmt: skip


async def do(conn: asyncpg.Connection, damage: Damage, session_uid: str) -> None:
    """As another tool might: no foreign key is in its way."""
    async with conn.transaction():
        await conn.execute("set local session_replication_role = replica")
        assert await conn.execute(damage.statement, session_uid) not in ("UPDATE 0", "DELETE 0", "INSERT 0 0"), damage.name
