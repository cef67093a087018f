"""The schema: that it is the one that schema.sql describes, and what a runtime role may do with it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from activities.db.migrate import MIGRATIONS, ensure_usable, head_revision, migrate, schema_status
from activities.db.pool import Database
from activities.db.queries import load_queries
from activities.db.shadow import Shadow, owned
from cli.doctor import check_postgres
from cli.endpoints import Endpoints
from settings import DatabaseSettings, Settings
from tests.io.privileges import found_needs, held_by
from tests.io.schemas import catalog, copied_migrations, opened, second, tables
from workflows.contracts.errors import DatabaseUnavailableError, MigrationError


async def test_style12_migrations_build_what_schema_sql_describes(migrated: DatabaseSettings, empty: DatabaseSettings) -> None:
    async with opened(empty) as connection:
        await connection.execute((MIGRATIONS.parent / "schema.sql").read_text())
    built, described = await catalog(migrated), await catalog(empty)
    assert len(described) > 100
    assert built == described, "copy schema.sql to migrations/sql/0001_initial.sql (until the first release), or add a migration"


def test_style12_the_head_that_a_start_expects_is_alembics() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_current_head() == head_revision()


async def test_style11_every_statement_fits_the_schema(database: Database) -> None:
    queries = load_queries()
    names = [name for name in queries.available_queries if not name.endswith("_cursor")]
    assert "try_locks" in names
    wrong = {}
    async with database.connection() as connection:
        for name in names:
            try:
                await connection.prepare(getattr(queries, name).sql)
            except asyncpg.PostgresError as error:
                wrong[name] = str(error)
    assert wrong == {}


async def test_style11_statements_of_the_owner_fit_the_schema(migrated: DatabaseSettings) -> None:
    async with Shadow.open(migrated) as shadow:
        for name in owned.available_queries:
            if name != "make_shadow" and not name.endswith("_cursor"):
                await shadow.conn.prepare(getattr(owned, name).sql)


async def test_style11_each_foreign_key_has_an_index(migrated: DatabaseSettings) -> None:
    """Without one, each row that goes looks through all that could refer to it: a long session would take too long to delete (S20)."""
    found = (
        "select f.conrelid::regclass || ' ' || f.conname as key from pg_constraint f where f.contype = 'f' and not exists ("
        "select from pg_index i where i.indrelid = f.conrelid and f.conkey <@ (i.indkey::int2[])[0:cardinality(f.conkey) - 1])"
    )
    async with opened(migrated) as connection:
        assert [row["key"] for row in await connection.fetch(found)] == []
        await connection.execute("drop index host_batches_by_message, sessions_by_parent")
        assert len(await connection.fetch(found)) == 2


async def test_r13_status_never_raises(empty: DatabaseSettings, migrated: DatabaseSettings) -> None:
    status = await schema_status(empty)
    assert (status.state, status.current, status.head) == ("behind", None, head_revision())
    assert (await schema_status(migrated)).state == "ready"
    for url in (
        "",
        "nonsense",
        "mysql://x/y",
        "postgresql://[::1/db",
        "postgresql://h:notaport/db",
        "postgresql://127.0.0.1:1/db",
        "postgresql://u@/db?host=/nowhere",
    ):
        status = await schema_status(DatabaseSettings(url=url, timeout_seconds=1))
        assert status.state == "unreachable"
        assert status.error


async def test_r13_a_schema_of_another_release_is_behind(migrated: DatabaseSettings, tmp_path: Path) -> None:
    migrations, script = copied_migrations(tmp_path)
    script.write_text(second("select 1"))
    assert (await schema_status(migrated, migrations=migrations)).state == "behind"
    await migrate(migrated, migrations=migrations)
    status = await schema_status(migrated)
    assert (status.state, status.current) == ("behind", "0002")
    with pytest.raises(DatabaseUnavailableError) as caught:
        await ensure_usable(migrated)
    assert caught.value.cause == "behind"
    with pytest.raises(MigrationError):
        await migrate(migrated)


@asynccontextmanager
async def runtime_role(settings: DatabaseSettings, role: str) -> AsyncIterator[DatabaseSettings]:
    """A role, and settings that use it on the same database."""
    async with opened(settings) as connection:
        await connection.execute(f'create role "{role}" login')
    try:
        yield DatabaseSettings(url=settings.url.replace("//outlast@", f"//{quote(role)}@"))
    finally:
        async with opened(settings) as connection:
            await connection.execute(f'drop owned by "{role}"; drop role "{role}"')


async def test_s44_runtime_role_gets_what_the_statements_need_and_no_more(empty: DatabaseSettings) -> None:
    async with runtime_role(empty, "probe") as runtime, opened(empty) as owner:
        await migrate(empty.model_copy(update={"runtime_role": "probe"}))
        assert (await ensure_usable(runtime)).state == "ready"
        granted = await held_by(owner, "probe")
        async with opened(runtime) as connection:
            for forbidden in (
                "create table x ()",
                "truncate messages",
                "alter table messages add x text",
                "drop table events",
                "create schema x",
            ):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await connection.execute(forbidden)
            assert len(granted) > 15
            assert granted == await found_needs(owner, connection, "probe"), "run `python -m tests.io.privileges`"


async def test_s44_a_privilege_that_is_not_needed_any_more_is_taken_back(empty: DatabaseSettings) -> None:
    async with runtime_role(empty, "run time") as runtime, opened(empty) as owner:
        settings = empty.model_copy(update={"runtime_role": "run time"})
        await migrate(settings)
        before = await held_by(owner, "run time")
        await owner.execute('grant all on sessions, audit to "run time"; create table mine (); grant select on mine to "run time"')
        more = await held_by(owner, "run time")
        await migrate(settings)
        assert await held_by(owner, "run time") == more != before, "processes of the release before may still run"
        await migrate(settings, exact=True)
        assert await held_by(owner, "run time") == before | {"mine": {"select"}}, "other tables are not ours"
        assert (await schema_status(runtime)).state == "ready"


async def test_s44_the_owner_is_no_runtime_role(migrated: DatabaseSettings) -> None:
    with pytest.raises(MigrationError, match="owns the schema"):
        await migrate(migrated.model_copy(update={"runtime_role": "outlast"}))
    assert (await schema_status(migrated)).state == "ready"


async def test_s44_a_missing_privilege_is_named(empty: DatabaseSettings) -> None:
    async with runtime_role(empty, "limited") as runtime:
        await migrate(empty.model_copy(update={"runtime_role": "limited"}))
        async with opened(empty) as connection:
            await connection.execute("revoke insert on messages, events from limited")
        before = await catalog(empty)
        with pytest.raises(DatabaseUnavailableError, match="insert on events, insert on messages") as caught:
            await ensure_usable(runtime)
        assert caught.value.cause == "privilege_missing"
        status = await schema_status(runtime)
        assert (status.state, status.cause) == ("behind", "privilege_missing")
        assert status.missing == ("insert on events", "insert on messages")
        endpoints = Endpoints(Settings(database=runtime), None, None)
        assert (await check_postgres(endpoints)).text.startswith("privilege_missing: role limited lacks insert on events")
        async with opened(empty) as connection:
            await connection.execute("revoke all on outlast_schema from limited")
        assert "select on outlast_schema" in (await schema_status(runtime)).missing
        assert await catalog(empty) == before


async def test_s44_a_role_that_does_not_exist(empty: DatabaseSettings) -> None:
    with pytest.raises(MigrationError, match="does not exist"):
        await migrate(empty.model_copy(update={"runtime_role": "nobody here"}))
    assert await tables(empty) == set()


async def test_s44_behind_is_named_and_not_repaired(empty: DatabaseSettings) -> None:
    with pytest.raises(DatabaseUnavailableError, match="outlast migrate") as caught:
        await ensure_usable(empty)
    assert caught.value.cause == "behind"
    assert await tables(empty) == set()
