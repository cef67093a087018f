"""Sessions of any length, written by Postgres itself."""

from uuid import UUID, uuid4

import asyncpg

WHOLE = 2**31 - 1

_BRANCHES = """
    insert into branches (session_uid, branch, tip_depth, chain, chain_depths)
    select $1, b, least((b + 1) * $3, $2) - 1, array(select generate_series(0, b)),
      array(select (link + 1) * $3 - 1 from generate_series(0, b - 1) as link) || $4::integer
    from generate_series(0, ($2 - 1) / $3) as b
"""

_MESSAGES = """
    insert into messages (session_uid, id, parent_id, role, content, branch, depth, count_all, count_user, count_assistant, change,
      created_at, updated_at, said_at, settled)
    select $1, 'm' || d, case when d > 0 then 'm' || d - 1 end, case when d % 2 = 0 then 'user' else 'assistant' end,
      'words number ' || d || repeat(' and more', $4), d / $3, d, d / 2 * 3 + case when d % 2 = 0 then 1 else 3 end, d / 2 + 1, (d + 1) / 2, d,
      said.at, said.at, said.at, true
    from generate_series(0, $2 - 1) as d
    cross join lateral (select timestamptz '2026-03-01T12:00:00Z' + make_interval(secs => d) as at) said
"""

_CALLS = """
    insert into calls (session_uid, call_id, message_id, segment, turn_id, attempt, step, position, tool_name, category, arguments,
      arguments_digest, options, state, outcome, output, requested_at, recorded_at)
    select session_uid, 'c' || depth, id, 0, 't', 1, 1, 0, 'add', 'server', '{}', '', '{}', 'recorded', 'success', '1', said_at, said_at
    from messages where session_uid = $1 and role = 'assistant'
"""

_STEERING = """
    insert into steering (session_uid, id, number, content, digest, status, turn_id, message_id, before_segment, change, accepted_at, delivered_at)
    select session_uid, 'g' || depth, depth, 'be brief', '', 'delivered', 't', id, 1, depth, said_at, said_at
    from messages where session_uid = $1 and role = 'assistant' and depth % 50 = 1
"""

_COUNTS = """
    update messages m set count_all = count_all + (depth + 49) / 50, count_user = count_user + (depth + 49) / 50 where session_uid = $1
"""

_SEGMENTS = """
    insert into segments (session_uid, message_id, position, turn_id, attempt, step, kind, text)
    select session_uid, id, p, 't', 1, 1, case when p = 0 then 'tool_group' else 'text' end, case when p = 0 then '' else content end
    from messages cross join generate_series(0, 1) as p where session_uid = $1 and role = 'assistant'
"""


async def write_conversation(
    conn: asyncpg.Connection, session_id: str, messages: int, *, per_branch: int = 0, words: int = 0, owner: str = "local"
) -> UUID:
    """A session of so many messages on one path, by turns a user's and an assistant's, each of which called a tool;
    one in fifty was steered.

    `per_branch`: the path changes to a new branch after so many. `words`: how much each message says.
    """
    uid, length = uuid4(), per_branch or messages
    async with conn.transaction():
        # References are right by construction; to check each of them would take as long as the rest.
        await conn.execute("set local session_replication_role = replica")
        await conn.execute(
            "insert into sessions (session_uid, tenant, session_id, owner, profile, active_leaf_id, created_at, updated_at) "
            "values ($1, 'default', $2, $3, 'default', $4, now(), now())",
            uid,
            session_id,
            owner,
            f"m{messages - 1}",
        )
        await conn.execute(_BRANCHES, uid, messages, length, WHOLE)
        await conn.execute(_MESSAGES, uid, messages, length, words)
        await conn.execute(_CALLS, uid)
        await conn.execute(_SEGMENTS, uid)
        await conn.execute(_STEERING, uid)
        await conn.execute(_COUNTS, uid)
    return uid
