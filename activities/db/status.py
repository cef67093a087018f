"""What state a database is in: is it there, does it let us in, is its schema the one that this release needs."""

import asyncio
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import asyncpg

from activities.db.errors import reason, refused_because
from activities.db.pool import connect, leave
from activities.db.queries import load_queries
from settings import DatabaseSettings
from workflows.contracts.errors import UnavailableCause

MIGRATIONS = Path(__file__).parent / "migrations"

State = Literal["unreachable", "auth_refused", "database_missing", "behind", "ready"]

sql = load_queries()


@dataclass(frozen=True, slots=True)
class SchemaStatus:
    """What was found (R13).

    `current` is the revision that the schema is at (None: no schema), `head` the one that this release needs. `error` says in one
    line what is wrong, None if nothing is. `missing` lists privileges that the role lacks of those that api and worker need; with
    any missing the state is `behind`: somebody has to run `outlast migrate` (S44). `role` is who was let in, and `owner` whose the
    schema is; the same where one role does both.
    """

    state: State
    current: str | None
    head: str
    error: str | None = None
    missing: tuple[str, ...] = ()
    role: str | None = None
    owner: str | None = None

    @property
    def cause(self) -> UnavailableCause | None:
        """Why it can't be used, as errors and operators call it; None if it can."""
        if self.state == "ready":
            return None
        return "privilege_missing" if self.missing else self.state


@cache
def head_revision(migrations: Path = MIGRATIONS) -> str:
    """The newest revision in `migrations`, by the number that its file name begins with. Spares a start the import of Alembic.

    Read once: a process is of the release that it started from, and a probe opens no files.
    """
    names = (path.name for path in (migrations / "versions").glob("*.py"))
    return max(found.group() for name in names if (found := re.match(r"\d{4}", name)))


async def schema_status(settings: DatabaseSettings, *, migrations: Path = MIGRATIONS) -> SchemaStatus:
    """Looks at the database that `settings` name, once. Never raises (R13); answers within twice `settings.timeout_seconds`."""
    head = head_revision(migrations)
    try:
        async with asyncio.timeout(2 * settings.timeout_seconds):
            connection = await connect(settings)
            try:
                return await _look(connection, head)
            finally:
                await leave(connection)
    except Exception as error:
        cause = refused_because(error)
        state: State = "auth_refused" if cause == "privilege_missing" else cause
        return SchemaStatus(state, None, head, reason(error))


async def _look(connection: asyncpg.Connection, head: str) -> SchemaStatus:
    role = connection.get_settings().session_authorization
    table = await sql.version_table(connection)
    if table is None:
        return SchemaStatus("behind", None, head, "the database has no schema: run `outlast migrate`", role=role)
    missing = tuple([row["what"] async for row in sql.needed_privileges(connection) if not row["held"]])
    current = await sql.schema_version(connection) if table["readable"] else None
    error = None
    if missing:
        error = f"role {role} lacks {', '.join(missing)}: run `outlast migrate` with OUTLAST_DATABASE__RUNTIME_ROLE"
    elif current != head:
        error = f"the schema is at {current}, this release needs {head}: run `outlast migrate`"
    return SchemaStatus("behind" if error else "ready", current, head, error, missing, role, table["owner"])


__all__ = ["MIGRATIONS", "SchemaStatus", "State", "head_revision", "schema_status"]
