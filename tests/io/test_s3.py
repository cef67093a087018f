"""Payloads in a bucket: how they are stored, found, kept apart and removed, and what is said where they can't be."""

import asyncio
import builtins
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from pydantic import SecretStr, ValidationError
from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverSelectContext,
    StorageDriverStoreContext,
    StorageDriverWorkflowInfo,
)

from activities.db.erasures import find_receipt
from activities.db.payloads import PayloadElsewhere, PayloadGone
from activities.db.pool import Database
from activities.db.s3 import S3Driver, S3Payloads, sql, workflow_of
from activities.db.storage import Storage
from api.app import create_app
from cli.doctor import check_payloads
from settings import CodecSettings, PayloadSettings, Settings
from tests.objects import ObjectServer
from tests.services import PATIENCE_SECONDS
from workflows.contracts.errors import ServiceUnavailable, SetupError
from workflows.contracts.naming import MOST_PARTY_BYTES, session_workflow_id, tenant_prefix

TEXT = Payload(metadata={"encoding": b"json/plain"}, data=b'"walrus"')
ODD = session_workflow_id("a ü/~%'(b)!", "s:1.2_3")
"""A workflow id of which every part needs another spelling in a key."""
READ = StorageDriverRetrieveContext()


def of(workflow_id: str, run_id: str | None = None, kind: str | None = None) -> StorageDriverStoreContext:
    return StorageDriverStoreContext(target=StorageDriverWorkflowInfo(namespace="default", id=workflow_id, run_id=run_id, type=kind))


@asynccontextmanager
async def stored_with(payloads: PayloadSettings, database: Database) -> AsyncIterator[tuple[S3Driver, S3Payloads]]:
    storage = Storage(Settings(payloads=payloads), database)
    assert storage.bucket
    try:
        yield S3Driver(storage.bucket), S3Payloads(storage.bucket, database, "default")
    finally:
        await storage.close()


@pytest.mark.parametrize(("prefix", "versions"), [("", False), ("outlast/one/", True)])
async def test_equal_payloads_are_objects_of_their_own_and_each_is_found_and_removed(
    database: Database, objects: ObjectServer, prefix: str, versions: bool
) -> None:
    settings = objects.payloads(prefix=prefix, versions=versions)
    async with stored_with(settings, database) as (driver, payloads):
        claims = await driver.store(of(ODD), [TEXT, TEXT])
        claims += await driver.store(of(ODD, str(uuid4()), "SessionWorkflow"), [TEXT])
        await driver.store(of(ODD + "9"), [TEXT])
        kept = objects.objects(settings)
        assert len(kept) == 4 and all(key.startswith(settings.s3_prefix) for key in kept)
        assert await driver.retrieve(READ, claims) == [TEXT] * 3

        soon = datetime.now(UTC) + timedelta(seconds=1)
        found = await payloads.of_workflow(ODD)
        assert {one.key for one in found} == {claim.claim_data["key"] for claim in claims}
        assert all(soon - timedelta(seconds=30) < one.at < soon for one in found)
        assert await payloads.workflows(soon) == [ODD, ODD + "9"]
        assert await payloads.workflows(soon - timedelta(hours=1)) == []

        assert await payloads.remove([one.key for one in found]) == await payloads.remove([one.key for one in found]) == 3
        assert await payloads.of_workflow(ODD) == [] and objects.versions(settings) == 1
        with pytest.raises(PayloadGone):
            await driver.retrieve(READ, claims[:1])


async def test_what_was_removed_but_kept_as_a_version_is_found_and_removed(database: Database, objects: ObjectServer) -> None:
    settings = objects.payloads(versions=True)
    async with stored_with(settings, database) as (driver, payloads):
        (claim,) = await driver.store(of("w"), [TEXT])
        objects.client.delete_object(Bucket=settings.s3_bucket, Key=claim.claim_data["key"])
        assert objects.objects(settings) == {} and objects.versions(settings) == 2
        (found,) = await payloads.of_workflow("w")
        await payloads.remove([found.key])
        assert objects.versions(settings) == 0
        assert (await check_payloads(Settings(payloads=settings))).verdict == "warn"


@pytest.mark.parametrize("versions", [False, True])
async def test_objects_are_listed_and_removed_page_by_page(
    database: Database, objects: ObjectServer, monkeypatch: pytest.MonkeyPatch, versions: bool
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "2")
    settings = objects.payloads(versions=versions)
    async with stored_with(settings, database) as (driver, payloads):
        claims = await driver.store(of("w"), [TEXT] * 5)
        found = await payloads.of_workflow("w")
        assert {one.key for one in found} == {claim.claim_data["key"] for claim in claims}
        await payloads.remove([one.key for one in found])
        assert objects.versions(settings) == 0


async def test_s17_a_reference_reads_the_configured_bucket_and_the_readers_own_tenant_only(
    database: Database, objects: ObjectServer
) -> None:
    settings, other = objects.payloads(), objects.payloads()
    async with stored_with(settings, database) as (driver, _), stored_with(other, database) as (elsewhere, _):
        (claim,) = await driver.store(of(session_workflow_id("acme", "s1")), [TEXT])
        (foreign,) = await elsewhere.store(of(session_workflow_id("acme", "s1")), [TEXT])
        with pytest.raises(PayloadGone):
            await driver.retrieve(READ, [foreign])
        moved = StorageDriverClaim({**claim.claim_data, "bucket": other.s3_bucket})
        assert await driver.retrieve(READ, [moved]) == [TEXT]
        storage = Storage(Settings(payloads=settings), database)
        for tenant, sees in (("acme", True), ("acm", False), ("acme2", False)):
            assert storage.bucket
            reader = S3Driver(storage.bucket, only=tenant_prefix(tenant))
            if sees:
                assert await reader.retrieve(READ, [claim]) == [TEXT]
            else:
                with pytest.raises(PayloadGone):
                    await reader.retrieve(READ, [claim])
        await storage.close()


async def test_a_workflow_whose_name_has_no_room_in_a_key_is_kept_in_postgres(database: Database, objects: ObjectServer) -> None:
    settings = Settings(payloads=objects.payloads(prefix="p" * 198 + "/"))
    storage = Storage(settings, database)
    external = storage.external()
    assert external.driver_selector

    def place(target: StorageDriverWorkflowInfo | None) -> str:
        driver = external.driver_selector(StorageDriverSelectContext(target=target), TEXT) if external.driver_selector else None
        return driver.name() if driver else ""

    fitting = 0
    for length in range(1, MOST_PARTY_BYTES + 1, 27):
        workflow_id = session_workflow_id("ü" * (length // 2) or "u", "s" * 64)
        target = StorageDriverWorkflowInfo(namespace="default", id=workflow_id, run_id=str(uuid4()), type="SessionWorkflow")
        if place(target) == "aws.s3driver":
            assert storage.bucket
            (claim,) = await S3Driver(storage.bucket).store(StorageDriverStoreContext(target=target), [TEXT])
            assert workflow_of(claim.claim_data["key"]) == workflow_id
            fitting = length
    assert 70 < fitting < MOST_PARTY_BYTES
    assert place(None) == "postgres"
    await storage.close()


async def test_where_there_is_no_bucket_or_no_access_one_line_says_so(
    database: Database, objects: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = objects.payloads()
    assert (await check_payloads(Settings(payloads=settings))).verdict == "ok" and objects.objects(settings) == {}
    nobody = {"Effect": "Deny", "Principal": "*", "Action": "s3:PutObject", "Resource": f"arn:aws:s3:::{settings.s3_bucket}/*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [nobody]})
    objects.client.put_bucket_policy(Bucket=settings.s3_bucket, Policy=policy)
    cases: dict[str, dict[str, Any]] = {
        f"the bucket {settings.s3_bucket} refused PutObject: 403": {},
        "the bucket nothing-here refused PutObject: NoSuchBucket": {"s3_bucket": "nothing-here"},
        'the bucket Not one can\'t be used: Parameter validation failed: Invalid bucket name "Not one"': {"s3_bucket": "Not one"},
        "can't be reached: EndpointConnectionError": {"s3_endpoint_url": "http://127.0.0.1:1"},
    }
    for said, changes in cases.items():
        broken = settings.model_copy(update=changes)
        finding = await check_payloads(Settings(payloads=broken))
        assert finding.verdict == "FAIL" and said in finding.text and broken.s3_bucket in finding.text

    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    async with stored_with(settings, database) as (driver, _):
        with pytest.raises(ServiceUnavailable, match="can't be used: Unable to locate credentials") as caught:
            await driver.store(of("w"), [TEXT])
        assert caught.value.service == "payloads"


@pytest.mark.usefixtures("s3_credentials")
async def test_a_bucket_that_hangs_is_given_up_in_time(database: Database) -> None:
    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async with await asyncio.start_server(hang, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        settings = PayloadSettings(s3_bucket="bucket", s3_endpoint_url=url, s3_timeout_seconds=0.3)
        async with asyncio.timeout(PATIENCE_SECONDS), stored_with(settings, database) as (driver, _):
            with pytest.raises(ServiceUnavailable, match=r"did not answer in time"):
                await driver.store(of("w"), [TEXT])


async def test_without_bucket_or_client_the_error_names_what_to_do(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for driver in Storage(Settings(), database).external().drivers:
        if driver.name() == "aws.s3driver":
            with pytest.raises(PayloadElsewhere, match="OUTLAST_PAYLOADS__S3_BUCKET"):
                await driver.retrieve(READ, [StorageDriverClaim({"bucket": "b", "key": "k"})])
    with pytest.raises(ValidationError, match="driver `s3` needs OUTLAST_PAYLOADS__S3_BUCKET"):
        PayloadSettings(driver="s3")
    for wrong in ({"s3_endpoint_url": "minio:9000"}, {"s3_prefix": "/p/"}, {"s3_prefix": "p"}):
        with pytest.raises(ValidationError, match="is not "):
            PayloadSettings.model_validate(wrong)

    real = builtins.__import__

    def missing(name: str, *rest: Any, **options: Any) -> Any:
        if name.startswith("aiobotocore"):
            raise ImportError(name)
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", missing)
    settings = Settings(payloads=PayloadSettings(s3_bucket="b"))
    for start in (lambda: Storage(settings, database), lambda: create_app(settings)):
        with pytest.raises(SetupError, match=r"install outlast\[s3\]"):
            start()
    with pytest.raises(SetupError, match="OUTLAST_CODEC__KEYS: key a has 5 bytes"):
        create_app(Settings(codec=CodecSettings(keys=[SecretStr("a:c2hvcnQ=")])))


async def test_s20_an_object_is_counted_once_however_often_its_removal_begins(database: Database, objects: ObjectServer) -> None:
    settings, uid = objects.payloads(), str(uuid4())
    async with stored_with(settings, database) as (driver, payloads):
        await driver.store(of("w"), [TEXT] * 3)
        keys = [one.key for one in await payloads.of_workflow("w")]
        async with database.connection() as connection:
            erasure = {"id": uid, "tenant": "t", "session_id": "s", "principal": "p", "rows": "{}", "begun_at": datetime.now(UTC)}
            await sql.note_erasure(connection, **erasure)
        objects.stop()
        try:
            with pytest.raises(ServiceUnavailable):
                await payloads.remove(keys[:2], uid)
        finally:
            objects.start()
        assert objects.versions(settings) == 3
        for _ in range(2):
            await payloads.remove(keys, uid)
        receipt = await find_receipt(database, UUID(uid))
        assert receipt and (receipt.payloads, objects.versions(settings)) == (3, 0)
        async with database.connection() as connection:
            await sql.verify_erasure(connection, id=uid, workflow_runs=0, at=datetime.now(UTC))
            assert await connection.fetchval("select count(*) from erased_objects") == 0
