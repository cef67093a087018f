"""Bringing a database to the schema of this release, and what api and worker check when they start."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg

from activities.db.errors import DRIVER_ERRORS, is_lost, reason
from activities.db.pool import connect, connect_options, leave
from activities.db.queries import load_queries
from activities.db.status import MIGRATIONS, SchemaStatus, head_revision, schema_status
from settings import DatabaseSettings
from workflows.contracts.errors import DatabaseUnavailableError, MigrationError, UnavailableCause

if TYPE_CHECKING:
    from sqlalchemy import Connection as SyncConnection

CREATE_SECONDS = 60.0
LOCK = 0x6F75746C617374
"""The advisory lock that upgrades of one database queue up for (R11)."""

log = logging.getLogger(__name__)
sql = load_queries()


async def ensure_usable(settings: DatabaseSettings, *, migrations: Path = MIGRATIONS) -> SchemaStatus:
    """What api and worker do first (R1-R9, S44). Returns what was found; anything but `ready` only where `settings.required` is false.

    No statement changes the database unless `settings.migrate_on_start`. Raises DatabaseUnavailableError and MigrationError.
    """
    status = await schema_status(settings, migrations=migrations)
    try:
        if settings.migrate_on_start and status.state in ("database_missing", "behind"):
            await migrate(settings, migrations=migrations)
            status = await schema_status(settings, migrations=migrations)
        _demand(status, ready=True)
    except DatabaseUnavailableError as error:
        if settings.required:
            raise
        log.warning("starting without a usable database: %s", error)
    return status


async def migrate(settings: DatabaseSettings, *, create: bool | None = None, exact: bool = False, migrations: Path = MIGRATIONS) -> None:
    """Brings the database that `settings` name, and no other (R14), to head, and grants `settings.runtime_role` what it needs.

    `exact`: also takes back from that role what this release does not need; processes of the release before may still need it.
    A missing database is made if `create`, by default `settings.migrate_on_start`. Everything happens in one transaction behind a
    lock: upgrades that run at once queue up (R11), and one that fails leaves the schema as it was (R9). Raises
    DatabaseUnavailableError if it can't get to the database, MigrationError if a migration fails.
    """
    status = await schema_status(settings, migrations=migrations)
    if status.state == "database_missing" and (settings.migrate_on_start if create is None else create):
        await create_database(settings)
        status = await schema_status(settings, migrations=migrations)
    _demand(status, ready=False)
    try:
        await _upgrade(settings, migrations, exact)
    except Exception as error:
        cause = _origin(error)
        if is_lost(cause):
            raise DatabaseUnavailableError("unreachable", f"Postgres was lost during a migration: {reason(cause)}") from error
        raise MigrationError(f"migration failed, the schema is as it was: {reason(cause)}") from error


async def create_database(settings: DatabaseSettings) -> None:
    """Makes the database that `settings` name. Somebody else was faster: fine (R12). Raises DatabaseUnavailableError (R7)."""
    name = connect_options(settings)["database"]
    try:
        connection = await _connect_beside(settings)
        try:
            await connection.execute(await sql.create_database_statement(connection, name=name), timeout=CREATE_SECONDS)
        finally:
            await leave(connection)
    except (asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
        return
    except DRIVER_ERRORS as error:
        cause: UnavailableCause = "unreachable" if is_lost(error) else "database_missing"
        raise DatabaseUnavailableError(cause, f"database {name} is missing and can't be created: {reason(error)}") from error


async def _connect_beside(settings: DatabaseSettings) -> asyncpg.Connection:
    """A connection to a database that every server has."""
    try:
        return await connect(settings, database="postgres")
    except asyncpg.InvalidCatalogNameError:
        return await connect(settings, database="template1")


async def _upgrade(settings: DatabaseSettings, migrations: Path, exact: bool) -> None:
    # Alembic and SQLAlchemy take half a second to import, and nothing but a migration needs them.
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    async def without_hurry() -> asyncpg.Connection:
        return await connect(settings, command_timeout=None)

    engine = create_async_engine("postgresql+asyncpg://", async_creator=without_hurry, poolclass=NullPool)
    try:
        async with engine.connect() as connection:
            driver = (await connection.get_raw_connection()).driver_connection
            await sql.lock_upgrades(driver, lock=LOCK)  # until this connection closes
            async with connection.begin():
                await connection.run_sync(_run_alembic, migrations)
                if settings.runtime_role:
                    await _grant(driver, settings.runtime_role, exact)
    finally:
        await engine.dispose()


def _run_alembic(connection: "SyncConnection", migrations: Path) -> None:
    from alembic import command
    from alembic.config import Config

    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


async def _grant(connection: Any, role: str, exact: bool) -> None:
    """Grants what this release needs, `exact`ly that if asked: what is taken back before is back at the commit, if it is needed."""
    table = await sql.version_table(connection)
    if table["owner"] == role:
        raise ValueError(f"role {role} owns the schema and needs no grants: name another OUTLAST_DATABASE__RUNTIME_ROLE, or none")
    grantee = await sql.quoted(connection, name=role)
    needed = [row async for row in sql.needed_privileges(connection)]
    for revoking in dict.fromkeys(row["revoking"] for row in needed if exact):
        await connection.execute(f"{revoking} from {grantee}")
    for row in needed:
        await connection.execute(f"{row['granting']} to {grantee}")


def _demand(status: SchemaStatus, *, ready: bool) -> None:
    if status.cause is None or (status.state == "behind" and not ready):
        return
    raise DatabaseUnavailableError(status.cause, f"database {status.cause.replace('_', ' ')}: {status.error}")


def _origin(error: BaseException) -> BaseException:
    """The driver's error under what SQLAlchemy wraps around it."""
    inner = getattr(error, "orig", None) or error.__cause__
    return _origin(inner) if inner is not None else error


__all__ = ["MIGRATIONS", "SchemaStatus", "create_database", "ensure_usable", "head_revision", "migrate", "schema_status"]
