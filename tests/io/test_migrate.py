"""The schema: how it is made, what a start checks, and that it is the one that schema.sql describes."""

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from activities.db.migrate import MIGRATIONS, create_database, ensure_usable, head_revision, migrate, schema_status
from activities.db.pool import Database, connect
from activities.db.queries import load_queries
from settings import DatabaseSettings
from tests.io.conftest import Statement
from tests.io.postgres import PostgresServer
from workflows.contracts.errors import DatabaseUnavailableError, MigrationError

CATALOG = """
    select 'column' as kind, table_name::text as relation, column_name::text as name,
      concat_ws(' ', ordinal_position, data_type, udt_name, is_nullable, column_default) as definition
    from information_schema.columns where table_schema = 'public'
    union all
    select 'constraint', conrelid::regclass::text, conname::text, pg_get_constraintdef(oid)
    from pg_constraint where connamespace = 'public'::regnamespace
    union all
    select 'index', tablename::text, indexname::text, indexdef from pg_indexes where schemaname = 'public'
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


@pytest.fixture
def with_second(tmp_path: Path) -> "tuple[Path, Path]":
    """A copy of the migrations and the path of a second one, which the test writes."""
    copy = tmp_path / "migrations"
    shutil.copytree(MIGRATIONS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy, copy / "versions" / "0002_second.py"


def second(statement: str) -> str:
    return f'''
from alembic import op
revision = "0002"
down_revision = "0001"
def upgrade():
    op.execute("create table second (id integer)")
    op.execute("{statement}")
'''


async def test_migrations_build_what_schema_sql_describes(migrated: DatabaseSettings, empty: DatabaseSettings) -> None:
    async with opened(empty) as connection:
        await connection.execute((MIGRATIONS.parent / "schema.sql").read_text())
    built, described = await catalog(migrated), await catalog(empty)
    assert len(described) > 100
    assert built == described, "copy schema.sql to migrations/sql/0001_initial.sql (until the first release), or add a migration"


def test_the_head_that_a_start_expects_is_alembics() -> None:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_current_head() == head_revision()


async def test_every_statement_fits_the_schema(database: Database) -> None:
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


async def test_r01_no_server(own_server: PostgresServer) -> None:
    settings = DatabaseSettings(url=own_server.url("outlast"))
    own_server.stop()
    with pytest.raises(DatabaseUnavailableError) as caught:
        await ensure_usable(settings)
    assert caught.value.cause == "unreachable"
    assert "\n" not in str(caught.value)


async def test_r01_a_server_that_hangs(own_server: PostgresServer) -> None:
    settings = DatabaseSettings(url=own_server.url("postgres"), timeout_seconds=0.5)
    own_server.freeze()
    async with asyncio.timeout(3):
        assert (await schema_status(settings)).state == "unreachable"


async def test_not_required_starts_without_a_server(own_server: PostgresServer) -> None:
    settings = DatabaseSettings(url=own_server.url("outlast"), required=False, migrate_on_start=True)
    own_server.stop()
    assert (await ensure_usable(settings)).state == "unreachable"


async def test_r05_missing_database_is_made_and_migrated(server: PostgresServer) -> None:
    settings = DatabaseSettings(url=server.url('r05 "quoted"'.replace('"', "%22").replace(" ", "%20")), migrate_on_start=True)
    status = await ensure_usable(settings)
    assert (status.state, status.current, status.head) == ("ready", head_revision(), head_revision())
    assert "messages" in await tables(settings)


async def test_r06_missing_database_is_not_made_unasked(server: PostgresServer) -> None:
    settings = DatabaseSettings(url=server.url("r06"))
    with pytest.raises(DatabaseUnavailableError) as caught:
        await ensure_usable(settings)
    assert caught.value.cause == "database_missing"
    assert (await schema_status(settings)).state == "database_missing"


async def test_r07_role_that_may_not_create_databases(server: PostgresServer, run_sql: Statement) -> None:
    await run_sql("create role r07 login password 'r07'")
    settings = DatabaseSettings(url=server.url("r07", "r07", "r07"), migrate_on_start=True)
    with pytest.raises(DatabaseUnavailableError, match="can't be created") as caught:
        await ensure_usable(settings)
    assert caught.value.cause == "database_missing"


@pytest.mark.parametrize(("user", "password"), [("outlast", "wrong"), ("nobody_of_that_name", "x"), ("outlast", "")])
async def test_r08_wrong_credentials(server: PostgresServer, user: str, password: str) -> None:
    settings = DatabaseSettings(url=server.url("r08", user, password), migrate_on_start=True)
    with pytest.raises(DatabaseUnavailableError) as caught:
        await ensure_usable(settings)
    assert caught.value.cause == "auth_refused"
    assert (await schema_status(DatabaseSettings(url=server.url("r08")))).state == "database_missing"


async def test_r09_failing_migration_leaves_the_schema_as_it_was(migrated: DatabaseSettings, with_second: tuple[Path, Path]) -> None:
    migrations, script = with_second
    before = await catalog(migrated)
    script.write_text(second("select 1 / 0"))
    with pytest.raises(MigrationError, match="division by zero") as caught:
        await migrate(migrated, migrations=migrations)
    assert caught.value.cause == "migration_failed"
    assert "\n" not in str(caught.value)
    assert await catalog(migrated) == before
    assert (await schema_status(migrated)).state == "ready"


async def test_r09_a_failing_last_migration_takes_the_others_back(empty: DatabaseSettings, with_second: tuple[Path, Path]) -> None:
    migrations, script = with_second
    script.write_text(second("select 1 / 0"))
    with pytest.raises(MigrationError):
        await migrate(empty, migrations=migrations)
    assert await tables(empty) == set()
    script.write_text(second("select 1"))
    await migrate(empty, migrations=migrations)
    assert {"second", "messages"} <= await tables(empty)


async def test_r11_upgrades_never_overlap(empty: DatabaseSettings, with_second: tuple[Path, Path], run_sql: Statement) -> None:
    migrations, script = with_second
    script.write_text(second("select pg_sleep(0.5)"))
    here = [migrate(empty, migrations=migrations) for _ in range(2)]
    program = (
        "import asyncio, sys; from pathlib import Path; from settings import DatabaseSettings; from activities.db.migrate import migrate\n"
    )
    program += "asyncio.run(migrate(DatabaseSettings(url=sys.argv[1]), migrations=Path(sys.argv[2])))"
    elsewhere = await asyncio.create_subprocess_exec(sys.executable, "-c", program, empty.url, str(migrations))
    await asyncio.gather(*here)  # without the lock the second one fails: the tables are there already
    assert await elsewhere.wait() == 0
    assert (await schema_status(empty, migrations=migrations)).state == "ready"


async def test_r12_the_loser_of_a_race_finds_the_database_made(server: PostgresServer) -> None:
    for number in range(5):
        settings = DatabaseSettings(url=server.url(f"r12_{number}"))
        await asyncio.gather(*(create_database(settings) for _ in range(4)))
        assert (await schema_status(settings)).state == "behind"


async def test_r12_two_starts_at_once(server: PostgresServer) -> None:
    settings = DatabaseSettings(url=server.url("r12_starts"), migrate_on_start=True)
    found = await asyncio.gather(*(ensure_usable(settings) for _ in range(3)))
    assert [status.state for status in found] == ["ready"] * 3


async def test_r13_status_never_raises(server: PostgresServer, empty: DatabaseSettings, migrated: DatabaseSettings) -> None:
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


async def test_r13_a_schema_of_another_release_is_behind(migrated: DatabaseSettings, with_second: tuple[Path, Path]) -> None:
    migrations, script = with_second
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


async def test_r14_only_the_given_settings_count(empty: DatabaseSettings, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_DATABASE__URL", "postgresql://127.0.0.1:1/elsewhere")
    for variable in ("PGHOST", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGOPTIONS"):
        monkeypatch.setenv(variable, "elsewhere")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "standby")
    await migrate(empty)
    assert (await schema_status(empty)).state == "ready"
    assert (await schema_status(DatabaseSettings(url=f"postgresql://{server.folder}".replace("/", "%2F")))).state == "unreachable"
    without_password = server.url("postgres").replace(":outlast-tests@", "@")
    monkeypatch.setenv("PGPASSWORD", "outlast-tests")
    assert (await schema_status(DatabaseSettings(url=without_password))).state == "auth_refused"


async def test_r22_socket_folder_and_empty_password(server: PostgresServer, migrated: DatabaseSettings) -> None:
    name = migrated.url.rpartition("/")[2]
    folder = str(server.folder)
    for url in (
        server.socket_url(name),
        f"postgresql://outlast:@/{name}?host={folder}&port={server.port}",
        f"postgresql:///{name}?host={folder}&port={server.port}&user=outlast",
        f"postgresql://outlast@{folder.replace('/', '%2F')}:{server.port}/{name}",
    ):
        status = await ensure_usable(DatabaseSettings(url=url))
        assert status.state == "ready", url


async def test_s44_runtime_role_gets_what_every_statement_needs(
    server: PostgresServer, empty: DatabaseSettings, run_sql: Statement
) -> None:
    await run_sql("create role \"run time\" login password 'pw'")
    await migrate(DatabaseSettings(url=empty.url, runtime_role="run time"))
    runtime = DatabaseSettings(url=empty.url.replace("outlast:outlast-tests", "run%20time:pw"))
    assert (await ensure_usable(runtime)).state == "ready"
    queries = load_queries()
    refused = {}
    async with opened(runtime) as connection:
        for name in queries.available_queries:
            try:
                await connection.execute(f"explain (generic_plan) {getattr(queries, name).sql}")
            except asyncpg.InsufficientPrivilegeError as error:
                refused[name] = str(error)
        assert refused == {}
        for forbidden in (
            "create table x ()",
            "update outlast_schema set version_num = 'x'",
            "delete from usage_ledger",
            "truncate messages",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(forbidden)


async def test_s44_a_missing_privilege_is_named(server: PostgresServer, empty: DatabaseSettings, run_sql: Statement) -> None:
    await run_sql("create role r44 login password 'pw'")
    await migrate(DatabaseSettings(url=empty.url, runtime_role="r44"))
    name = empty.url.rpartition("/")[2]
    await run_sql("revoke insert on messages, events from r44", name)
    runtime = DatabaseSettings(url=server.url(name, "r44", "pw"), migrate_on_start=False)
    before = await catalog(empty)
    with pytest.raises(DatabaseUnavailableError, match="insert on events, insert on messages") as caught:
        await ensure_usable(runtime)
    assert caught.value.cause == "privilege_missing"
    status = await schema_status(runtime)
    assert (status.state, status.missing) == ("behind", ("insert on events", "insert on messages"))
    await run_sql("revoke all on outlast_schema from r44", name)
    assert "select on outlast_schema" in (await schema_status(runtime)).missing
    assert await catalog(empty) == before


async def test_s44_behind_is_named_and_not_repaired(empty: DatabaseSettings) -> None:
    with pytest.raises(DatabaseUnavailableError, match="outlast migrate") as caught:
        await ensure_usable(empty)
    assert caught.value.cause == "behind"
    assert await tables(empty) == set()


async def test_migrating_is_silent(empty: DatabaseSettings, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        await migrate(empty)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("alembic")]
