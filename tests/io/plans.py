"""What a statement touches, as EXPLAIN ANALYZE counts it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from activities.db.queries import load_queries

FOR_ANY = "force_generic_plan"
_KINDS = ("force_custom_plan", FOR_ANY)
"""Statements are prepared: Postgres plans them for their values at first, and once for all later."""


@dataclass(frozen=True)
class Touched:
    """Rows that all nodes of a plan together produced or threw away, pages they looked at, and the indexes that were used."""

    rows: float
    pages: int
    indexes: frozenset[str]
    scans: frozenset[str]


async def touched(conn: asyncpg.Connection, name: str, **named: Any) -> list[Touched]:
    """What a statement of the queries touched with a plan for these values, and with one for any."""
    queries = load_queries()
    statement: str = getattr(queries, name).sql
    values = [named[parameter] for parameter in queries.driver_adapter.var_sorted[name]]
    types = [str(parameter.name) for parameter in (await conn.prepare(statement)).get_parameters()]
    found = []
    for kind in _KINDS:
        plan = await explained(conn, statement, types, values, kind=kind, options="analyze, buffers, timing off")
        nodes = list(_nodes(plan))
        pages = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        indexes = frozenset(node["Index Name"] for node in nodes if "Index Name" in node)
        scans = frozenset(node["Relation Name"] for node in nodes if node["Node Type"] == "Seq Scan" and node["Actual Loops"])
        found.append(Touched(sum(map(_rows, nodes)), pages, indexes, scans))
    return found


async def explained(
    conn: asyncpg.Connection, statement: str, types: Sequence[str], values: Sequence[object], *, kind: str, options: str = "costs"
) -> dict[str, Any]:
    """The plan of a statement with parameters of these types: `kind` is for these values or for any, `options` are EXPLAIN's."""
    async with conn.transaction():
        await conn.execute(f"set local plan_cache_mode = {kind}")
        # A table of a test fits on a page or two, and is then read whole; one of a deployment doesn't.
        await conn.execute("set local enable_seqscan = off")
        await conn.execute(f"prepare looked_at ({', '.join(types)}) as {statement}")
        literals = ", ".join("null" if value is None else f"'{value}'" for value in values)
        told = await conn.fetchval(f"explain ({options}, format json) execute looked_at ({literals})")
        await conn.execute("deallocate looked_at")
    plan: dict[str, Any] = json.loads(told)[0]["Plan"]
    return plan


def _rows(node: dict[str, Any]) -> float:
    thrown = (
        node.get("Rows Removed by Filter", 0) + node.get("Rows Removed by Index Recheck", 0) + node.get("Rows Removed by Join Filter", 0)
    )
    return float((node["Actual Rows"] + thrown) * node["Actual Loops"])


def _nodes(plan: dict[str, Any]) -> Any:
    yield plan
    for inner in plan.get("Plans", []):
        yield from _nodes(inner)
