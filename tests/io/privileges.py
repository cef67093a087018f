"""What the statements of `sql/*.sql` need of a role, found by taking each privilege away and asking Postgres which of them it refuses then.

`python -m tests.io.privileges` writes it into `sql/privileges.sql`.
"""

import asyncio
import re

import asyncpg

from activities.db.queries import SQL, load_queries

Needs = dict[str, set[str]]
"""By table: `select`, `insert`, `delete`, `update column`."""

FILE = SQL / "privileges.sql"
BLOCK = re.compile(r"(?<=as \(values\n).*?(?=\), home as)", re.DOTALL)


async def found_needs(owner: asyncpg.Connection, runtime: asyncpg.Connection, role: str) -> Needs:
    """The least that `runtime`, connected as `role`, has to hold so that every statement is let through. Leaves the role with everything."""
    rows = await owner.fetch(
        "select table_name::text as relation, array_agg(column_name::text) as columns from information_schema.columns "
        "where table_schema = 'public' group by 1 order by 1"
    )
    tables = {row["relation"]: row["columns"] for row in rows}
    for table in tables:
        await owner.execute(f"grant select, insert, update, delete on {table} to {role}")
    needs: Needs = {}
    for table, columns in tables.items():
        statements = _statements_about(table)
        for privilege in ("select", "insert", "delete"):
            await owner.execute(f"revoke {privilege} on {table} from {role}")
            if await _refused(runtime, statements):
                needs.setdefault(table, set()).add(privilege)
            await owner.execute(f"grant {privilege} on {table} to {role}")
        needs.setdefault(table, set()).update(await _updates(owner, runtime, role, table, columns))
    return {table: held for table, held in needs.items() if held}


async def _updates(owner: asyncpg.Connection, runtime: asyncpg.Connection, role: str, table: str, columns: list[str]) -> set[str]:
    statements = _statements_about(table)
    needed = set()
    await owner.execute(f"revoke update on {table} from {role}")
    if await _refused(runtime, statements):
        for column in columns:
            others = ", ".join(other for other in columns if other != column)
            await owner.execute(f"grant update ({others}) on {table} to {role}")
            if await _refused(runtime, statements):
                needed.add(f"update {column}")
            await owner.execute(f"revoke update on {table} from {role}")
    await owner.execute(f"grant update on {table} to {role}")
    return needed


def _statements_about(table: str) -> list[str]:
    queries = load_queries()
    names = [name for name in queries.available_queries if not name.endswith("_cursor") and name != "needed_privileges"]
    texts = [getattr(queries, name).sql for name in names]
    return [text for text in texts if re.search(rf"\b{table}\b", text)]


async def _refused(runtime: asyncpg.Connection, statements: list[str]) -> bool:
    """Whether Postgres refuses one of them. It looks at the privileges when it begins to execute, which an `explain` does too."""
    for statement in statements:
        try:
            await runtime.execute(f"explain (generic_plan) {statement}")
        except asyncpg.InsufficientPrivilegeError:
            return True
    return False


async def held_by(owner: asyncpg.Connection, role: str) -> Needs:
    """What a role holds on tables by grants of its own."""
    rows = await owner.fetch(
        "select table_name::text as relation, lower(privilege_type) as held from information_schema.role_table_grants where grantee = $1 "
        "union all select c.relname, lower(x.privilege_type) || ' ' || a.attname from pg_attribute a "
        "join pg_class c on c.oid = a.attrelid cross join aclexplode(a.attacl) x where x.grantee = to_regrole(quote_ident($1))",
        role,
    )
    held: Needs = {}
    for row in rows:
        held.setdefault(row["relation"], set()).add(row["held"])
    return held


def written(needs: Needs) -> str:
    """The same as lines of `sql/privileges.sql`."""
    lines = []
    for table, held in sorted(needs.items()):
        whole = ", ".join(privilege for privilege in ("select", "insert", "delete") if privilege in held)
        columns = ", ".join(sorted(privilege.removeprefix("update ") for privilege in held if privilege.startswith("update ")))
        lines.append(f"  ('{table}', '{whole}', '{columns}')")
    return ",\n".join(lines) + "\n"


async def main() -> None:
    """Asks a Postgres with the schema of `schema.sql`."""
    from tests import services

    with services.running_postgres() as server:
        owner = await asyncpg.connect(server.url("postgres"))
        await owner.execute((SQL.parent / "schema.sql").read_text())
        await owner.execute(
            "create table outlast_schema (version_num text); create role probe login; grant usage on schema public to probe"
        )
        runtime = await asyncpg.connect(server.url("postgres"), user="probe")
        needs = await found_needs(owner, runtime, "probe")
        await runtime.close()
        await owner.close()
    FILE.write_text(BLOCK.sub(written(needs), FILE.read_text()))


if __name__ == "__main__":
    asyncio.run(main())
