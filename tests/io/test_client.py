"""Payloads between clients, workers, Temporal and Postgres."""

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle, WorkflowUpdateFailedError
from temporalio.converter import StorageDriverRetrieveContext, StorageDriverStoreContext, StorageDriverWorkflowInfo
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Replayer, Worker

from activities.db.client import connect, data_converter, words_of_core
from activities.db.encryption import codec_of
from activities.db.payloads import PayloadGone, PostgresDriver
from activities.db.pool import Database
from activities.db.storage import Storage
from cli.endpoints import Endpoints, temporal_client
from cli.services.postgres import PostgresServer
from settings import CodecSettings, DatabaseSettings, Settings
from tests import services
from tests.io.echo import Echo, Saying, repeat
from tests.io.keys import keys
from tests.services import PATIENCE_SECONDS
from workflows.contracts.errors import ServiceUnavailable, SetupError

MEGABYTE = "m" * 1_000_000
CLEAR = CodecSettings()
OTHERS = """
    select count(*) from pg_stat_activity
    where datname = current_database() and backend_type = 'client backend' and pid <> pg_backend_pid()
"""
EchoHandle = WorkflowHandle[Echo, list[Saying]]


@asynccontextmanager
async def echoing(temporal_address: str, database: Database, codec: CodecSettings = CLEAR) -> AsyncIterator[EchoHandle]:
    """A running echo, its worker and an api client, as they are in production."""
    settings = Settings(task_queue=f"echo-{uuid4()}", codec=codec)
    hands = await connect(settings, Storage(settings, database), temporal_address, for_api=False)
    async with Worker(hands, task_queue=settings.task_queue, workflows=[Echo], activities=[repeat], build_id="echo"):
        client = await connect(settings, Storage(settings, database), temporal_address, for_api=True)
        yield await client.start_workflow(Echo.run, id=f"echo/{uuid4()}", task_queue=settings.task_queue)


async def stored(database: Database) -> list[tuple[str, bytes]]:
    async with database.connection() as connection:
        return [(row["workflow_id"], row["body"]) for row in await connection.fetch("select workflow_id, body from payloads")]


async def test_large_payloads_stay_out_of_history(temporal_address: str, database: Database) -> None:
    async with echoing(temporal_address, database) as echo:
        assert (await echo.execute_update(Echo.say, Saying(text=MEGABYTE))).text == MEGABYTE
        assert await echo.execute_update(Echo.say, Saying(text=MEGABYTE, through_activity=True)) == Saying(
            text=MEGABYTE, through_activity=True
        )
        await echo.signal(Echo.end)
        assert [saying.text for saying in await echo.result()] == [MEGABYTE] * 2
        history = await echo.fetch_history()
    size = sum(event.ByteSize() for event in history.events)
    assert size < 20_000
    rows = await stored(database)
    assert len(rows) == 7  # two updates asked and answered, the activity asked and answered, the result
    assert {workflow_id for workflow_id, _ in rows} == {echo.id}
    converter = data_converter(Storage(Settings(), database).external(read_only=True))
    replayer = Replayer(workflows=[Echo], data_converter=converter, build_id="echo")
    await replayer.replay_workflow(history)
    assert await stored(database) == rows
    async with database.connection() as connection:
        await connection.execute("delete from payloads")
    with pytest.raises(RuntimeError, match="activation completion failed"):
        await replayer.replay_workflow(history)


async def test_a_command_that_has_a_pool_gets_large_payloads_through_it(temporal_address: str, database: Database) -> None:
    async with temporal_client(Endpoints(Settings(database=database.settings), temporal_address, None), database) as client:
        unserved = await client.start_workflow(Echo.run, id=f"echo/{uuid4()}", task_queue="nobody", memo={"large": MEGABYTE})
        assert (await (await unserved.describe()).memo())["large"] == MEGABYTE
        await unserved.terminate()
        assert len(await stored(database)) == 1
        with pytest.raises(ServiceUnavailable, match=r"Temporal at 127.0.0.1:.*not found"):
            async with temporal_client(Endpoints(Settings(database=database.settings), temporal_address, None), database) as again:
                await again.get_workflow_handle("nobody").describe()
        async with database.connection() as connection, asyncio.timeout(PATIENCE_SECONDS):
            while await connection.fetchval(OTHERS):  # Postgres notices a moment later that one was closed
                await asyncio.sleep(0.02)


async def test_small_payloads_are_json_without_defaults(temporal_address: str, database: Database) -> None:
    async with echoing(temporal_address, database) as echo:
        await echo.execute_update(Echo.say, Saying(text="hello"))
        history = await echo.fetch_history()
    accepted = [event.workflow_execution_update_accepted_event_attributes for event in history.events]
    payloads = [one.data for event in accepted for one in event.accepted_request.input.args.payloads]
    assert payloads == [b'{"text":"hello"}']
    assert await stored(database) == []


async def test_failures_are_not_readable_in_history(temporal_address: str, database: Database) -> None:
    async with echoing(temporal_address, database, keys("a")) as echo:
        with pytest.raises(WorkflowUpdateFailedError) as caught:
            await echo.execute_update(Echo.fail, "hunter2")
        assert "refused: hunter2" in str(caught.value.cause)
        history = await echo.fetch_history()
    assert "hunter2" not in history.to_json()


async def test_storage_is_behind_the_codec(temporal_address: str, database: Database) -> None:
    async with echoing(temporal_address, database, keys("a")) as echo:
        assert (await echo.execute_update(Echo.say, Saying(text=MEGABYTE))).text == MEGABYTE
        assert len(await stored(database)) == 2
        assert not any(b"mmmm" in body for _, body in await stored(database))
        history = await echo.fetch_history()
    converter = data_converter(Storage(Settings(), database).external(read_only=True), codec_of(keys("a").keys))
    await Replayer(workflows=[Echo], data_converter=converter, build_id="echo").replay_workflow(history)


async def test_r15_storage_lost_and_back(temporal_address: str, own_postgres: PostgresServer) -> None:
    database = await Database.open(DatabaseSettings(url=services.as_runtime(own_postgres.url(services.TEMPLATE))))
    large = Saying(text=MEGABYTE, through_activity=True)
    async with echoing(temporal_address, database) as echo:
        assert (await echo.execute_update(Echo.say, large)).text == MEGABYTE
        await asyncio.to_thread(own_postgres.stop)
        with pytest.raises(ServiceUnavailable):
            await echo.execute_update(Echo.say, large)
        assert (await echo.execute_update(Echo.say, Saying(text="small"))).text == "small"
        own_postgres.start()
        assert (await echo.execute_update(Echo.say, large)).text == MEGABYTE
    await database.close()


async def test_claims_come_back_in_order_or_not_at_all(database: Database) -> None:
    driver = PostgresDriver(database)
    context = StorageDriverStoreContext(target=StorageDriverWorkflowInfo(namespace="default", id="w"))
    payloads = [Payload(data=str(number).encode()) for number in range(20)]
    claims = await driver.store(context, payloads)
    assert await driver.retrieve(StorageDriverRetrieveContext(), claims[::-1]) == payloads[::-1]
    unknown = dataclasses.replace(claims[0], claim_data={"key": str(uuid4())})
    with pytest.raises(PayloadGone):
        await driver.retrieve(StorageDriverRetrieveContext(), [claims[1], unknown])


async def test_temporals_own_variables_say_where_it_is(
    temporal_address: str, database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    client = await connect(Settings(), Storage(Settings(), database), for_api=False)
    assert client.service_client.config.target_host == temporal_address
    monkeypatch.delenv("TEMPORAL_ADDRESS")
    file = tmp_path / "temporal.toml"
    file.write_text(f'[profile.here]\naddress = "{temporal_address}"\nnamespace = "other"\n')
    monkeypatch.setenv("TEMPORAL_CONFIG_FILE", str(file))
    monkeypatch.setenv("TEMPORAL_PROFILE", "here")
    client = await connect(Settings(), Storage(Settings(), database), for_api=False)
    assert (client.service_client.config.target_host, client.namespace) == (temporal_address, "other")
    file.write_text("[profile.here\n")
    with pytest.raises(SetupError):
        await connect(Settings(), Storage(Settings(), database), for_api=False)


async def test_without_temporal_an_api_starts_and_its_calls_fail_soon(database: Database) -> None:
    with pytest.raises(ServiceUnavailable) as caught:
        await connect(Settings(), Storage(Settings(), database), "127.0.0.1:1", for_api=False)
    assert caught.value.service == "temporal"
    client: Client = await connect(Settings(), Storage(Settings(), database), "127.0.0.1:1", for_api=True)
    began = time.monotonic()
    with pytest.raises((RPCError, RuntimeError)) as failed:
        await client.get_workflow_handle("x").describe()
    if isinstance(failed.value, RPCError):
        assert failed.value.status == RPCStatusCode.UNAVAILABLE
    assert time.monotonic() - began < 8
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ('tonic::Error(ConnectError("tcp connect error", Os { code: 111, message: "Connection refused" }))', "Connection refused"),
        ('ConnectError("dns error", Custom { kind: Uncategorized, error: "failed to lookup: \\"x\\"" })', 'failed to lookup: "x"'),
        ("h2 protocol error: http2 error", "h2 protocol error: http2 error"),
    ],
)
def test_what_the_core_says_is_told_without_its_structure(said: str, words: str) -> None:
    assert words_of_core(RuntimeError(said)) == words
