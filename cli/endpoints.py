"""Where Postgres and Temporal are: as configured, else those of the `outlast dev` on the same data folder."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from cli.record import DevRecord, read_record
from settings import Settings
from workflows.contracts.errors import ServiceUnavailable, SetupError

if TYPE_CHECKING:
    from temporalio.client import Client

    from activities.db.pool import Database


@dataclass(frozen=True)
class Endpoints:
    """`settings` name the database. `temporal` is an address (host:port), None for what Temporal's own configuration says.

    `record` is that of the `outlast dev` whose services are used, None if everything is configured.
    """

    settings: Settings
    temporal: str | None
    record: DevRecord | None

    @property
    def durable(self) -> bool:
        """False if state is lost with the `outlast dev` whose services are used."""
        return self.record is None or self.record.durable


def find_endpoints(settings: Settings) -> Endpoints:
    """Where the services are. Raises SetupError if no database is configured and no `outlast dev` runs on the data folder."""
    address = configured_temporal()
    url = settings.database.url
    record = read_record(settings.data_dir)
    if record is None or (url and record.database_url != url):
        if not url:
            raise SetupError(f"no database: set OUTLAST_DATABASE__URL, or start `outlast dev` on {settings.data_dir}")
        return Endpoints(settings, None, None)
    return Endpoints(with_database(settings, record.database_url), None if address else record.temporal, record)


def configured_temporal() -> str | None:
    """The address that `TEMPORAL_*` variables or the TOML profile name, None if they name none. Raises SetupError if they can't be read."""
    from activities.db.temporal_config import client_profile

    return client_profile().address or None


def configured_namespace() -> str:
    """The namespace that Temporal's own configuration names. Raises SetupError if it can't be read."""
    from activities.db.temporal_config import client_profile

    return client_profile().namespace or "default"


def with_database(settings: Settings, url: str, **changes: object) -> Settings:
    """The same settings on another database."""
    return settings.model_copy(update={"database": settings.database.model_copy(update={"url": url, **changes})})


def with_origins(settings: Settings, origins: list[str]) -> Settings:
    """The same settings with pages of further origins let in."""
    access = settings.access.model_copy(update={"origins": [*settings.access.origins, *origins]})
    return settings.model_copy(update={"access": access})


def api_url(host: str, port: int) -> str:
    """Where to reach an api that listens on `host`: on this machine if it listens on every address."""
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]", "": "127.0.0.1"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{quote(name, safe='[]:.')}:{port}"


@asynccontextmanager
async def usable_database(found: Endpoints) -> "AsyncIterator[Database]":
    """The database, once its schema and the role's privileges are known to fit. Raises SetupError and DatabaseUnavailableError."""
    from activities.db.migrate import ensure_usable
    from activities.db.pool import Database

    await ensure_usable(found.settings.database)
    database = await Database.open(found.settings.database)
    try:
        yield database
    finally:
        await database.close()


@asynccontextmanager
async def temporal_client(found: Endpoints, database: "Database | None" = None) -> "AsyncIterator[Client]":
    """A client of Temporal as a worker has it. Large payloads it gets from `database`, by default from a pool of its own.

    Raises SetupError, and ServiceUnavailable if Temporal does not answer, or says no to what is asked of it in the block.
    """
    from temporalio.service import RPCError

    from activities.db.client import connect
    from activities.db.pool import Database
    from activities.db.storage import Storage
    from cli.secrets import with_secrets

    found = with_secrets(found)
    async with AsyncExitStack() as stack:
        if database is None:
            database = await Database.open(found.settings.database)
            stack.push_async_callback(database.close)
        storage = Storage(found.settings, database)
        stack.push_async_callback(storage.close)
        client = await connect(found.settings, storage, found.temporal, for_api=False)
        try:
            yield client
        except RPCError as error:
            raise ServiceUnavailable("temporal", f"Temporal at {client.service_client.config.target_host}: {error.message}") from error
