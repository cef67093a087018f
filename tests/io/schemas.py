"""Looking at the schema of a database, and migrations that a test invents."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg

from activities.db.migrate import MIGRATIONS
from activities.db.pool import connect
from settings import DatabaseSettings

CATALOG = """
    select 'column' as kind, table_name::text as relation, column_name::text as name,
      concat_ws(' ', ordinal_position, data_type, udt_name, is_nullable, column_default) as definition
    from information_schema.columns where table_schema = 'public'
    union all
    select 'planner', attrelid::regclass::text, attname::text, attoptions::text
    from pg_attribute join pg_class on pg_class.oid = attrelid where relnamespace = 'public'::regnamespace and attoptions is not null
    union all
    select 'constraint', conrelid::regclass::text, conname::text, pg_get_constraintdef(oid)
    from pg_constraint where connamespace = 'public'::regnamespace
    union all
    select 'index', tablename::text, indexname::text, indexdef from pg_indexes where schemaname = 'public'
    union all
    select 'view', viewname::text, '', definition from pg_views where schemaname = 'public'
    union all
    select 'trigger', tgrelid::regclass::text, tgname::text, pg_get_triggerdef(oid) from pg_trigger where not tgisinternal
    union all
    select 'function', '', proname::text, pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace
"""


@asynccontextmanager
async def opened(settings: DatabaseSettings) -> AsyncIterator[asyncpg.Connection]:
    connection = await connect(settings)
    try:
        yield connection
    finally:
        await connection.close()


async def tables(settings: DatabaseSettings) -> set[str]:
    async with opened(settings) as connection:
        rows = await connection.fetch("select tablename from pg_tables where schemaname = 'public'")
    return {row["tablename"] for row in rows}


async def catalog(settings: DatabaseSettings) -> set[tuple[str, ...]]:
    async with opened(settings) as connection:
        rows = await connection.fetch(CATALOG)
    return {tuple(row) for row in rows if row["relation"] != "outlast_schema"}


def copied_migrations(tmp_path: Path) -> tuple[Path, Path]:
    """A copy of the migrations and the path of a second one, which the test writes."""
    copy = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy, copy / "versions" / "0002_second.py"


def second(statement: str) -> str:
    return f"""
from alembic import op
revision = "0002"
down_revision = "0001"
def upgrade():
    op.execute("create table second (id integer)")
    op.execute("{statement}")
"""
