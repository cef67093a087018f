"""How a database gets its schema, and what a start does about it."""

import asyncio
import sys
from pathlib import Path

import pytest

from activities.db.migrate import create_database, ensure_usable, head_revision, migrate, schema_status
from settings import DatabaseSettings
from tests.io.conftest import Statement
from tests.io.postgres import PostgresServer
from tests.io.schemas import catalog, copied_migrations, second, tables
from workflows.contracts.errors import DatabaseUnavailableError, MigrationError


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


async def test_r09_failing_migration_leaves_the_schema_as_it_was(migrated: DatabaseSettings, tmp_path: Path) -> None:
    migrations, script = copied_migrations(tmp_path)
    before = await catalog(migrated)
    script.write_text(second("select 1 / 0"))
    with pytest.raises(MigrationError, match="division by zero") as caught:
        await migrate(migrated, migrations=migrations)
    assert caught.value.cause == "migration_failed"
    assert "\n" not in str(caught.value)
    assert await catalog(migrated) == before
    assert (await schema_status(migrated)).state == "ready"


async def test_r09_a_failing_last_migration_takes_the_others_back(empty: DatabaseSettings, tmp_path: Path) -> None:
    migrations, script = copied_migrations(tmp_path)
    script.write_text(second("select 1 / 0"))
    with pytest.raises(MigrationError):
        await migrate(empty, migrations=migrations)
    assert await tables(empty) == set()
    script.write_text(second("select 1"))
    await migrate(empty, migrations=migrations)
    assert {"second", "messages"} <= await tables(empty)


async def test_r11_upgrades_never_overlap(empty: DatabaseSettings, tmp_path: Path, run_sql: Statement) -> None:
    migrations, script = copied_migrations(tmp_path)
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


async def test_r14_only_the_given_settings_count(empty: DatabaseSettings, server: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTLAST_DATABASE__URL", "postgresql://127.0.0.1:1/elsewhere")
    for variable in ("PGHOST", "PGDATABASE", "PGUSER", "PGPASSWORD", "PGOPTIONS"):
        monkeypatch.setenv(variable, "elsewhere")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "standby")
    await migrate(empty)
    assert (await schema_status(empty)).state == "ready"
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


async def test_migrating_is_silent(empty: DatabaseSettings, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        await migrate(empty)
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("alembic")]
