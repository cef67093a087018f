"""A session whose large payloads are in a bucket, from the change of drivers to its erasure, with everything real but the model."""

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriver, StorageDriverStoreContext, StorageDriverWorkflowInfo

from activities.db.client import data_converter
from activities.db.encryption import codec_of
from activities.db.payloads import PayloadElsewhere, PostgresPayloads
from activities.leftovers import Found, Leftovers, StillInFlight
from activities.runs import Runs
from cli.erasing import run_collect
from cli.replay.run import Batch, run_replay
from settings import PayloadSettings
from tests.everything import rolled, session_of, verifying
from tests.http.test_codec import payloads_of
from tests.http.test_erasure import deleted, done
from tests.io.keys import keys
from tests.models import calls, says, script
from tests.objects import ObjectServer
from tests.replay.test_histories import replayer
from tests.system import System, running_system

WORD = "hippopotamus"
LARGE = WORD + " x" * 100_000
MODEL = [
    says("one"),
    calls(("c1", "big", {"characters": 200_000}), ("h1", "open_page", {"url": "u"})),
    says("two"),
    says("three"),
    calls(("c2", "big", {"characters": 200_000})),
    says("four"),
    says("five"),
    says("six"),
]


async def rows(system: System) -> int:
    found: int = await system.conn.fetchval("select count(*) from payloads")
    return found


async def stored(system: System, workflow_id: str) -> None:
    """Stores a payload in the bucket that no history refers to: its request was refused, or its process died."""
    drivers: dict[str, StorageDriver] = {driver.name(): driver for driver in system.kit.storage.external().drivers}
    target = StorageDriverWorkflowInfo(namespace=system.temporal.namespace, id=workflow_id)
    await drivers["aws.s3driver"].store(StorageDriverStoreContext(target=target), [Payload(data=WORD.encode())])


def count(found: Found) -> int:
    return sum(map(len, found.values()))


async def collected(system: System, hours: float, capsys: pytest.CaptureFixture[str]) -> list[str]:
    await run_collect(system.settings, timedelta(hours=hours))
    return capsys.readouterr().out.splitlines()[-2:]


async def raw(system: System) -> list[dict[str, Any]]:
    """The payloads of all runs of the session, as Temporal has them."""
    return [payload for run in await system.histories("s1") for payload in payloads_of(run.to_json_dict())]


async def replayed(system: System) -> int:
    """Replays every run with the converter of `outlast replay`, and answers how many there were."""
    converter = data_converter(system.kit.storage.external(read_only=True), codec_of(system.settings.codec.keys))
    histories = await system.histories("s1")
    for history in histories:
        await replayer(converter=converter).replay_workflow(history)
    return len(histories)


async def test_r15_s20_a_session_lives_with_s3_from_the_change_of_drivers_to_its_erasure(
    database_url: str,
    temporal_address: str,
    objects: ObjectServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    s3, scripted = objects.payloads(prefix="acme/"), script(*MODEL)
    async with running_system(database_url, temporal_address, scripted) as system:
        assert (await system.chat("s1", LARGE))["content"] == "one"
        in_postgres = await rows(system)
    async with running_system(database_url, temporal_address, scripted, like=system, payloads=s3, codec=keys("a")) as with_s3:
        await lives(with_s3, s3, objects)
        assert await rows(with_s3) == in_postgres
        await bucket_lost_and_back(with_s3, objects)
        await read_by_operators(with_s3, s3, objects, database_url, monkeypatch)
    back = s3.model_copy(update={"driver": "postgres"})
    async with running_system(database_url, temporal_address, scripted, like=system, payloads=back, codec=keys("a")) as again:
        in_s3 = len(objects.objects(s3))
        assert (await again.chat("s1", LARGE))["content"] == "five"
        assert (await rows(again) > in_postgres, len(objects.objects(s3))) == (True, in_s3)
        await left_over(again, s3, objects, capsys)
        await rolled(again, "s1")
        assert (await again.chat("s1", "and now?"))["content"] == "six"
        await erased(again, s3, objects)


async def lives(system: System, s3: PayloadSettings, objects: ObjectServer) -> None:
    """Large inputs and results, over a rollover; the bucket has ciphertext only, under the session's workflow."""
    await system.chat("s1", LARGE)
    assert (await system.resume("s1", "h1", {"seen": LARGE})).json()["content"] == "two"
    await rolled(system, "s1")
    assert (await system.chat("s1", LARGE))["content"] == "three"
    kept = objects.objects(s3)
    assert len(kept) >= 4
    assert all(key.startswith("acme/v0/ns/") and f"/wi/session%2F{system.tenant}%2Fs1/" in key for key in kept)
    assert all(len(body) > 128_000 and WORD.encode() not in body and b"xxxxxxxx" not in body for body in kept.values())


async def bucket_lost_and_back(system: System, objects: ObjectServer) -> None:
    """A large message is refused and leaves nothing; a small one passes, and its tool's large result waits for the bucket."""
    objects.stop()
    try:
        refused = await system.post("/chat", {"session_id": "s1", "content": LARGE})
        assert (refused.status_code, refused.json()["code"]) == (503, "payloads_unavailable")
        assert "can't be reached" in refused.json()["detail"] and refused.json()["maybe_happened"] is False
        before = len(await system.messages("s1"))
        turn = await system.submit("s1", "count")
        result = "select count(*) from calls where call_id = 'c2' and state = 'recorded'"
        await system.until(lambda: system.conn.fetchval(result))
        await asyncio.sleep(0)
    finally:
        objects.start()

    ended = "select state = 'completed' from turns where turn_id = $1"
    await system.until(lambda: system.conn.fetchval(ended, turn["turn_id"]))
    messages = await system.messages("s1")
    assert len(messages) > before and messages[-1]["content"] == "four"
    assert not [message for message in messages[before:] if WORD in message["content"]]


async def read_by_operators(
    system: System, s3: PayloadSettings, objects: ObjectServer, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replays, `outlast replay --from-server`, `outlast verify` and the codec server read both places, and leave nothing there."""
    before = objects.objects(s3)
    assert await replayed(system) == 2
    ref = await session_of(system, "s1")
    async with verifying(system, database_url) as verifier:
        assert (await verifier.verify(ref)).state == "same"
    kept = await raw(system)
    for tenant, sees in ((system.tenant, True), (f"{system.tenant}-other", False)):
        said = {"x-test-principal": "root", "x-test-roles": "admin", "x-test-tenant": tenant}
        answer = await system.http.post("/codec/decode", json={"payloads": kept}, headers=said)
        seen = [base64.b64decode(one.get("data", "")) for one in answer.json()["payloads"]]
        assert (len(seen), any(LARGE.encode() in one for one in seen)) == (len(kept), sees)
    for name, value in {
        "OUTLAST_DATABASE__URL": system.settings.database.url,
        "OUTLAST_CODEC__KEYS": ",".join(key.get_secret_value() for key in system.settings.codec.keys),
        **{f"OUTLAST_PAYLOADS__{name.upper()}": str(value) for name, value in s3.model_dump().items()},
    }.items():
        monkeypatch.setenv(name, value)
    assert await run_replay(system.settings, Batch([], from_server=True, query=f"WorkflowId = '{system.workflow('s1').id}'", jobs=1))
    assert objects.objects(s3) == before


async def left_over(system: System, s3: PayloadSettings, objects: ObjectServer, capsys: pytest.CaptureFixture[str]) -> None:
    """What no history refers to goes once it is old, and nothing else: not what older runs refer to, not what may be on its way."""
    session, starting = system.workflow("s1").id, f"session/{system.tenant}/starting"
    used = set(objects.objects(s3))
    for workflow_id in (session, starting):
        await stored(system, workflow_id)
    stores, now = system.kit.storage.stores(system.temporal.namespace), datetime.now(UTC)
    for workflow_id in (session, starting):
        leftovers = Leftovers(stores, system.temporal, workflow_id)
        with pytest.raises(StillInFlight):
            await leftovers.of_ended(now, now)
        assert count(await leftovers.of_ended(now, now + timedelta(seconds=91))) >= 1
    assert [line.split(": ")[1] for line in await collected(system, 1, capsys)] == ["payloads of 0 workflows looked at, 0 removed"] * 2
    assert len(objects.objects(s3)) == len(used) + 2
    collected_now = await collected(system, -0.01, capsys)
    assert collected_now[1].startswith("aws.s3driver: payloads of 2 workflows looked at, ")
    left = set(objects.objects(s3))
    assert left <= used and len(used) - len(left) + 2 == int(collected_now[1].split()[-2])
    referred = await Runs(system.temporal, session).referred_to(
        await Runs(system.temporal, session).all(), {key.rpartition("/")[2] for key in used}
    )
    assert {key.rpartition("/")[2] for key in left} == referred
    again = await collected(system, -0.01, capsys)
    assert again == [f"{name}: payloads of 1 workflow looked at, 0 removed" for name in ("postgres", "aws.s3driver")]
    assert await replayed(system) == 2


async def erased(system: System, s3: PayloadSettings, objects: ObjectServer) -> None:
    """Nothing of the session is left in either place; the receipt has counted both, and who has no bucket can't give one."""
    runs = Runs(system.temporal, system.workflow("s1").id)
    blind = Leftovers([PostgresPayloads(system.kit.db)], system.temporal, system.workflow("s1").id)
    with pytest.raises(PayloadElsewhere, match="OUTLAST_PAYLOADS__S3_BUCKET"):
        await blind.of_runs(await runs.all())
    stored = len(objects.objects(s3)) + await rows(system)
    erasure_id = await deleted(system, "s1")
    receipt = await system.until(lambda: done(system, erasure_id), 200)
    assert (receipt["verified"], receipt["workflow_runs"], receipt["payloads"]) == (True, 3, stored)
    assert objects.objects(s3) == {} and await rows(system) == 0
    assert await system.conn.fetchval("select count(*) from erased_objects") == 0
