"""The real servers of a test run. Each ends with the run, whichever way that goes: the kernel ends what a killed run leaves.

Every process of pytest-xdist has servers of its own, started by the first test that asks: half a second each, and no test can
disturb one of another process.
"""

import itertools
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.services.postgres import PostgresServer
    from cli.services.temporal import TemporalServer

TEMPLATE = "outlast_template"
RUNTIME_ROLE = "outlast_runtime"
"""What api and worker connect as in tests: it holds what `outlast migrate` grants and no more."""
SIGNING_KEY = "test:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
DYNAMIC = {
    # A run younger than this that continues as new delays its successor; tests roll sessions far more often than life does.
    "history.workflowIdReuseMinimalInterval": '"10ms"',
    # Deleted histories are gone at once instead of after half a minute.
    "history.transferProcessorEnsureCloseBeforeDelete": "false",
}
PATIENCE_SECONDS = 60.0
"""How long tests wait for what comes in a moment on a machine that has nothing else to do."""
_numbers = itertools.count(1)


@contextmanager
def short_folder(prefix: str) -> Iterator[Path]:
    """A folder with a path so short that it may hold a Unix socket."""
    folder = Path(tempfile.mkdtemp(prefix=f"{prefix}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_temporal(*, ui: bool = False, durable: bool = True, dynamic: Mapping[str, str] | None = None) -> "Iterator[TemporalServer]":
    """A Temporal dev server with the search attributes registered."""
    from cli.services.temporal import TemporalServer
    from tests.ports import free_port

    with short_folder("outlast-temporal") as folder:
        server = TemporalServer(folder, port=free_port(), ui=ui, durable=durable, dynamic={**DYNAMIC, **(dynamic or {})})
        try:
            server.start(2 * PATIENCE_SECONDS)
            yield server
        finally:
            server.stop(seconds=3.0)


@contextmanager
def running_postgres(*, tcp_port: int | None = None, options: Mapping[str, str] | None = None) -> "Iterator[PostgresServer]":
    """A Postgres server that spares the disk: its data is not meant to outlive the machine. It has many databases, and keeps out of their tests."""
    from cli.services.postgres import NOT_DURABLE, PostgresServer

    quiet = {**NOT_DURABLE, "shared_buffers": "64MB", "autovacuum_naptime": "1min"}
    with short_folder("outlast-postgres") as folder:
        server = PostgresServer(folder, tcp_port=tcp_port, options={**quiet, **(options or {})})
        try:
            server.start(2 * PATIENCE_SECONDS)
            yield server
        finally:
            server.signal(signal.SIGCONT)  # a test that failed may have left it frozen
            server.stop()


async def make_template(server: "PostgresServer") -> None:
    """Makes the database that `fresh_database` copies: migrated by its owner for a runtime role, as a deployment's is."""
    import asyncpg

    from activities.db.migrate import migrate
    from settings import DatabaseSettings

    admin = await asyncpg.connect(server.url("postgres"))
    try:
        await admin.execute(f"create role {RUNTIME_ROLE} login")
    finally:
        await admin.close()
    await migrate(DatabaseSettings(url=server.url(TEMPLATE), runtime_role=RUNTIME_ROLE), create=True)


def as_runtime(url: str) -> str:
    """The same database for api and worker. `url` is its owner's, with which a test looks and prepares."""
    from cli.services.postgres import SUPERUSER

    return url.replace(f"//{SUPERUSER}@", f"//{RUNTIME_ROLE}@")


@asynccontextmanager
async def fresh_database(server: "PostgresServer", template: str | None = TEMPLATE) -> AsyncIterator[str]:
    """The URL of a database of its own, at the schema's head; empty with `template=None`. It is dropped at the end, connections or not."""
    import asyncpg

    name = f"test_{next(_numbers)}"
    admin = await asyncpg.connect(server.url("postgres"))
    try:
        await admin.execute(f"create database {name}" + (f" template {template} strategy file_copy" if template else ""))
        yield server.url(name)
        await admin.execute(f"drop database if exists {name} with (force)")
    finally:
        await admin.close()
