"""How a row of a session is found by its key, in a database of which nearly all sessions are short."""

import asyncpg

from tests.io.plans import FOR_ANY, explained

SHORT_SESSIONS = 3_000

UNIQUE = """
    select c.relname as relation, i.relname as index, array_agg(a.attname::text order by k.place) as columns,
      array_agg(format_type(a.atttypid, null) order by k.place) as types
    from pg_index x join pg_class c on c.oid = x.indrelid join pg_class i on i.oid = x.indexrelid
    cross join lateral unnest(x.indkey::smallint[]) with ordinality k(number, place)
    join pg_attribute a on a.attrelid = c.oid and a.attnum = k.number
    where c.relnamespace = 'public'::regnamespace and x.indisunique and x.indpred is null
    group by 1, 2
    having (array_agg(a.attname order by k.place))[1] = 'session_uid' and count(*) > 1
    order by 1, 2
"""

ONE_TURN_EACH = """
    with s as (
      insert into sessions (session_uid, tenant, session_id, profile, created_at, updated_at)
      select gen_random_uuid(), 'default', 's' || i, 'default', now(), now() from generate_series(1, $1::integer) i returning session_uid
    ), b as (
      insert into branches select session_uid, 0, 1, '{0}', '{1}' from s
    ), t as (
      insert into turns (session_uid, turn_id, number, kind, state, message_id, profile, accepted_at, started_at, ended_at, final)
      select session_uid, gen_random_uuid()::text, 1, 'message', 'completed', gen_random_uuid()::text, 'default', now(), now(), now(), '{}'
      from s returning session_uid, turn_id, message_id
    ), m as (
      insert into messages (session_uid, id, role, content, branch, depth, count_all, count_user, count_assistant, change, created_at,
        updated_at, said_at, settled)
      select session_uid, message_id, 'user', '', 0, 0, 1, 1, 0, 1, now(), now(), now(), true from t
    ), h as (
      insert into host_batches (session_uid, message_id, turn_id, step, state, opened_at)
      select session_uid, message_id, turn_id, 1, 'closed', now() from t
    ), c as (
      insert into calls (session_uid, call_id, message_id, segment, turn_id, attempt, step, position, tool_name, category, arguments,
        arguments_digest, options, state, outcome, requested_at, recorded_at)
      select session_uid, gen_random_uuid()::text, message_id, 0, turn_id, 1, 1, 0, 'look', 'host', '{}', '', '{}', 'recorded', 'success',
        now(), now() from t
    ), g as (
      insert into steering (session_uid, id, number, content, digest, change, accepted_at)
      select session_uid, gen_random_uuid()::text, 1, '', '', 1, now() from t
    ), e as (
      insert into events (session_uid, seq, turn_id, type, data, at) select session_uid, 1, turn_id, 'turn.started', '{}', now() from t
    )
    insert into steps (session_uid, turn_id, attempt, step) select session_uid, turn_id, 1, 1 from t
"""


async def test_s16_a_row_is_found_by_its_whole_key_though_sessions_have_one_turn_on_average(conn: asyncpg.Connection) -> None:
    """By another index it would be found among all that its session has."""
    await conn.execute("set session_replication_role = replica")  # references are right by construction
    await conn.execute(ONE_TURN_EACH, SHORT_SESSIONS)
    await conn.execute("analyze")
    keys = await conn.fetch(UNIQUE)
    assert {"messages", "turns", "steps", "calls", "steering", "host_batches", "events"} <= {key["relation"] for key in keys}
    found = {f"{key['relation']} {key['index']}": await _condition(conn, key) for key in keys}
    wrong = {
        name: condition for (name, condition), key in zip(found.items(), keys, strict=True) if condition.count(" = ") < len(key["columns"])
    }
    assert wrong == {}


async def _condition(conn: asyncpg.Connection, key: asyncpg.Record) -> str:
    """What the plan for any values looks up in an index."""
    wanted = " and ".join(f"{column} = ${number}" for number, column in enumerate(key["columns"], 1))
    statement = f"select from {key['relation']} where {wanted}"
    plan = await explained(conn, statement, key["types"], [None] * len(key["columns"]), kind=FOR_ANY)
    return str(plan.get("Index Cond") or plan.get("Plans", [{}])[0].get("Index Cond", ""))
