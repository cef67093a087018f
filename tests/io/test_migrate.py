"""How a database gets its schema, and what a start does about it."""

import asyncio
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from activities.db.migrate import create_database, ensure_usable, head_revision, migrate, schema_status
from cli.services.postgres import PostgresServer
from settings import DatabaseSettings
from tests.io.schemas import catalog, copied_migrations, second, tables
from tests.services import PATIENCE_SECONDS
from workflows.contracts.errors import DatabaseUnavailableError, MigrationError


async def refusal(settings: DatabaseSettings) -> DatabaseUnavailableError:
    """Why a start is refused. One line, no more (R1)."""
    with pytest.raises(DatabaseUnavailableError) as caught:
        await ensure_usable(settings)
    assert "\n" not in str(caught.value)
    return caught.value


async def test_r01_no_server(bare_postgres: PostgresServer) -> None:
    settings = DatabaseSettings(url=bare_postgres.url(), migrate_on_start=True)
    await asyncio.to_thread(bare_postgres.stop)
    assert (await refusal(settings)).cause == "unreachable"


async def test_r01_no_server_on_the_port() -> None:
    assert (await refusal(DatabaseSettings(url="postgresql://outlast:x@127.0.0.1:1/outlast"))).cause == "unreachable"


async def test_r01_a_server_that_hangs(bare_postgres: PostgresServer) -> None:
    settings = DatabaseSettings(url=bare_postgres.url("postgres"), timeout_seconds=0.5)
    bare_postgres.signal(signal.SIGSTOP)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert (await schema_status(settings)).state == "unreachable"
    bare_postgres.signal(signal.SIGCONT)


async def test_not_required_starts_without_a_server(bare_postgres: PostgresServer) -> None:
    settings = DatabaseSettings(url=bare_postgres.url(), required=False, migrate_on_start=True)
    await asyncio.to_thread(bare_postgres.stop)
    assert (await ensure_usable(settings)).state == "unreachable"


async def test_r05_missing_database_is_made_and_migrated(bare_postgres: PostgresServer) -> None:
    settings = DatabaseSettings(url=bare_postgres.url('a "quoted" name'), migrate_on_start=True)
    status = await ensure_usable(settings)
    assert (status.state, status.current, status.head) == ("ready", head_revision(), head_revision())
    assert "messages" in await tables(settings)


async def test_r06_missing_database_is_not_made_unasked(bare_postgres: PostgresServer) -> None:
    settings = DatabaseSettings(url=bare_postgres.url())
    assert (await refusal(settings)).cause == "database_missing"
    assert (await schema_status(settings)).state == "database_missing"


async def test_r07_role_that_may_not_create_databases(password_url: str) -> None:
    settings = DatabaseSettings(url=password_url.format(user="guest", password="right", database="r07"), migrate_on_start=True)
    error = await refusal(settings)
    assert error.cause == "database_missing"
    assert "can't be created" in str(error)


async def test_r08_wrong_credentials(password_url: str) -> None:
    def as_user(user: str, password: str) -> DatabaseSettings:
        return DatabaseSettings(url=password_url.format(user=user, password=password, database="r08"), migrate_on_start=True)

    for user, password in (("owner", "wrong"), ("owner", ""), ("nobody_of_that_name", "x")):
        assert (await refusal(as_user(user, password))).cause == "auth_refused"
    assert (await schema_status(as_user("owner", "right"))).state == "database_missing"


async def test_r09_a_failing_migration_leaves_the_schema_as_it_was(migrated: DatabaseSettings, tmp_path: Path) -> None:
    migrations, script = copied_migrations(tmp_path)
    before = await catalog(migrated)
    script.write_text(second("select 1 / 0"))
    with pytest.raises(MigrationError, match="division by zero") as caught:
        await ensure_usable(migrated.model_copy(update={"migrate_on_start": True}), migrations=migrations)
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


async def test_r11_upgrades_never_overlap(empty: DatabaseSettings, tmp_path: Path) -> None:
    """Without the lock all but one fail: the tables are there already."""
    migrations, script = copied_migrations(tmp_path)
    script.write_text(second("select pg_sleep(0.5)"))
    program = """
import asyncio, pathlib, sys
from activities.db.migrate import migrate
from settings import DatabaseSettings
asyncio.run(migrate(DatabaseSettings(url=sys.argv[1]), migrations=pathlib.Path(sys.argv[2])))
"""
    elsewhere = await asyncio.create_subprocess_exec(sys.executable, "-c", program, empty.url, str(migrations))
    await asyncio.gather(*(migrate(empty, migrations=migrations) for _ in range(2)))
    assert await elsewhere.wait() == 0
    assert (await schema_status(empty, migrations=migrations)).state == "ready"


async def test_r12_the_loser_of_a_race_finds_the_database_made(bare_postgres: PostgresServer) -> None:
    for number in range(3):
        settings = DatabaseSettings(url=bare_postgres.url(f"r12_{number}"))
        await asyncio.gather(*(create_database(settings) for _ in range(4)))
        assert (await schema_status(settings)).state == "behind"


async def test_r12_three_starts_at_once(bare_postgres: PostgresServer) -> None:
    settings = DatabaseSettings(url=bare_postgres.url("starts"), migrate_on_start=True)
    found = await asyncio.gather(*(ensure_usable(settings) for _ in range(3)))
    assert [status.state for status in found] == ["ready"] * 3


async def test_r14_only_the_given_settings_count(
    empty: DatabaseSettings, password_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OUTLAST_DATABASE__URL", "postgresql://127.0.0.1:1/elsewhere")
    for variable in ("PGHOST", "PGDATABASE", "PGUSER", "PGPASSWORD"):
        monkeypatch.setenv(variable, "elsewhere")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "standby")
    await migrate(empty)
    assert (await schema_status(empty)).state == "ready"
    given: Callable[..., str] = password_url.format
    assert (await schema_status(DatabaseSettings(url=given(user="owner", password="right", database="postgres")))).state == "behind"
    monkeypatch.setenv("PGPASSWORD", "right")
    passwords = tmp_path / "pgpass"
    passwords.write_text("*:*:*:*:right\n")
    passwords.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(passwords))
    without = DatabaseSettings(url=given(user="owner", password="", database="postgres"))
    assert (await schema_status(without)).state == "auth_refused"


async def test_r22_socket_folder_and_empty_password(migrated: DatabaseSettings, postgres: PostgresServer) -> None:
    name = migrated.url.rpartition("@/")[2].partition("?")[0]
    folder = str(postgres.socket_folder)
    for url in (
        f"postgresql://outlast@/{name}?host={folder}",
        f"postgresql://outlast:@/{name}?host={folder}&port=5432",
        f"postgresql:///{name}?host={folder}&user=outlast",
        f"postgresql://outlast@{folder.replace('/', '%2F')}:5432/{name}",
    ):
        assert (await ensure_usable(DatabaseSettings(url=url))).state == "ready", url


async def test_migrating_is_silent(empty: DatabaseSettings, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        await migrate(empty)
    assert tuple(capfd.readouterr()) == ("", "")
    assert not [record for record in caplog.records if record.name.startswith("alembic")]
