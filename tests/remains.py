"""Looks for words everywhere: in each column of each table that the catalog knows, and in all that Temporal holds."""

import base64

import asyncpg
from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError, RPCStatusCode

TABLES = """
    select c.relname as name, array_remove(array_agg(a.attname::text) filter (where a.atttypid = 'bytea'::regtype), null) as binary
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'm')
    group by 1
"""


def disguises(word: str) -> list[bytes]:
    """A word as it may be written down: itself, and within base64 of text that begins with it (its length is a multiple of three)."""
    assert len(word) % 3 == 0 and word.isascii() and word.isalpha()
    return [word.encode(), base64.b64encode(word.encode())]


async def remains(word: str, conn: asyncpg.Connection, client: Client) -> set[str]:
    """Where the word is found: names of tables, ids of workflows whose history or whose entry in the list has it."""
    return await in_tables(word, conn) | await in_temporal(word, client)


async def in_tables(word: str, conn: asyncpg.Connection) -> set[str]:
    found = set()
    for table in await conn.fetch(TABLES):
        looks = [
            "position($1 in convert_to(x::text, 'UTF8')) > 0",
            *(f"position($1 in x.{column}) > 0" for column in table["binary"] or ()),
        ]
        for disguise in disguises(word):
            if await conn.fetchval(f"select exists (select from {table['name']} x where {' or '.join(looks)})", disguise):
                found.add(table["name"])
    return found


async def in_temporal(word: str, client: Client) -> set[str]:
    found = set()
    async for run in client.list_workflows():
        texts = [run.raw_info.SerializeToString(), *await _events(client, run)]
        if any(disguise in text for disguise in disguises(word) for text in texts):
            found.add(run.id)
    return found


async def _events(client: Client, run: WorkflowExecution) -> list[bytes]:
    """Those of a run's history. None are left of one that is gone and still listed."""
    try:
        history = await client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
    except RPCError as error:
        if error.status != RPCStatusCode.NOT_FOUND:
            raise
        return []
    return [event.SerializeToString() for event in history.events]
