"""Fixtures of every tier. Nothing starts before a test asks for it, and nothing heavy is imported here."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING

import pytest
import uvloop

from tests import leftovers, services

if TYPE_CHECKING:
    from temporalio.client import Client

    from cli.services.postgres import PostgresServer
    from cli.services.temporal import TemporalServer
    from tests.objects import ObjectServer

os.environ["OUTLAST_SIGNING__KEYS"] = services.SIGNING_KEY
"""No API starts without. Programs that tests start get nothing of our environment."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs the tests in the background ignores Ctrl-C for them, and programs that they start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_asyncio_loop_factories() -> "dict[str, Callable[[], asyncio.AbstractEventLoop]]":
    """Tests run on the event loop that programs run on."""
    return {"uvloop": uvloop.new_event_loop}


def pytest_sessionstart() -> None:
    """Where a workflow task takes too long, the SDK raises something in its thread. What happens to come to rest there (a weak reference
    that goes, a `__del__`) can't raise it further, and the task is done again: that a machine is slow is no fault of the test that runs.
    """
    told = sys.unraisablehook

    def hook(unraisable: "sys.UnraisableHookArgs") -> None:
        if unraisable.exc_type.__name__ != "_InterruptDeadlockError":
            told(unraisable)

    sys.unraisablehook = hook


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    """A test leaves its process as it found it: whatever comes next must not depend on what came before."""
    before = leftovers.state()
    with leftovers.given_back():
        yield
    assert leftovers.left(before, leftovers.state()) == []


@pytest.fixture(scope="session")
def temporal_server() -> "Iterator[TemporalServer]":
    """The Temporal server that tests share. Nobody stops it; task queues and session ids keep tests apart."""
    with services.running_temporal() as server:
        yield server


@pytest.fixture(scope="session")
def temporal_address(temporal_server: "TemporalServer") -> str:
    """`host:port` of the shared Temporal server."""
    return temporal_server.address


@pytest.fixture
async def temporal(temporal_address: str) -> "Client":
    """A client of the shared Temporal server that sends and reads pydantic models, without external storage."""
    from temporalio.client import Client
    from temporalio.contrib.pydantic import pydantic_data_converter

    return await Client.connect(temporal_address, data_converter=pydantic_data_converter)


@pytest.fixture
def own_temporal() -> "Iterator[TemporalServer]":
    """A Temporal server that the test may stop, freeze and start again on the same data."""
    with services.running_temporal() as server:
        yield server


@pytest.fixture(scope="session")
def postgres() -> "Iterator[PostgresServer]":
    """The Postgres server that tests share, with the migrated template. Nobody stops it."""
    with services.running_postgres() as server:
        asyncio.run(services.make_template(server))
        yield server


@pytest.fixture
def own_postgres() -> "Iterator[PostgresServer]":
    """A Postgres server that the test may stop, freeze and start again on the same data, with the migrated template."""
    with services.running_postgres() as server:
        asyncio.run(services.make_template(server))
        yield server


@pytest.fixture
async def database_url(postgres: "PostgresServer") -> AsyncIterator[str]:
    """A database at the schema's head that no other test sees."""
    async with services.fresh_database(postgres) as url:
        yield url


@pytest.fixture
async def empty_database_url(postgres: "PostgresServer") -> AsyncIterator[str]:
    """A database without a schema that no other test sees."""
    async with services.fresh_database(postgres, template=None) as url:
        yield url


@pytest.fixture
def s3_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who we are to servers that speak S3, in the environment."""
    from tests.objects import CREDENTIALS

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def object_server() -> "Iterator[ObjectServer]":
    """The server that speaks S3 which tests share. Nobody else starts it."""
    from tests.objects import running_objects

    with running_objects() as server:
        yield server


@pytest.fixture
def objects(object_server: "ObjectServer", s3_credentials: None) -> "ObjectServer":
    """A server that speaks S3, and knows us. A test may stop it and start it again; buckets keep tests apart."""
    object_server.start()  # a test that failed may have left it stopped
    return object_server
