"""The erasure of all that is a person's, and payloads that nobody refers to, with everything real but the model."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.converter import StorageDriverStoreContext, StorageDriverWorkflowInfo

from activities.db.payloads import PostgresDriver, PostgresPayloads
from activities.leftovers import Found, Leftovers, StillInFlight
from activities.runs import Runs
from cli.erasing import run_again, run_collect, run_erase, start_erasure
from cli.services.temporal import TemporalServer
from tests.models import calls, hangs, says, script
from tests.remains import in_tables, remains
from tests.system import System, running_system
from workflows.contracts.errors import SetupError
from workflows.contracts.naming import principal_erasure_workflow_id

WORD, LATER = "hippopotamus", "rhinoceroses"
PARTS = "select id from (select id, count(*) over () as parts from erasures where part_of = $1) as part where parts = 2"
ALICE, BOB = {"x-test-principal": "alice"}, {"x-test-principal": "bob"}


async def say(system: System, session: str, content: str, who: dict[str, str], wait: bool = True) -> None:
    path = "/chat" if wait else "/chat?wait=false"
    answer = await system.post(path, {"session_id": session, "content": content}, headers=who)
    assert answer.status_code == (200 if wait else 202), answer.text


async def test_s20_s78_all_that_is_a_persons_goes_across_a_crash_and_nothing_else(
    database_url: str, own_temporal: TemporalServer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", own_temporal.address)
    scripted = script(says(LATER), says("hi"), says(WORD), calls(("h1", "open_page", {"url": WORD})), says(WORD), hangs(WORD))
    with monkeypatch.context() as held:
        held.setattr(Runs, "delete", not_yet)
        async with running_system(database_url, own_temporal.address, scripted, worker_shutdown_seconds=0.5) as system:
            await _live_sessions(system)
            erasure_id = await start_erasure(system.kit.db, system.temporal, system.settings.task_queue, system.tenant, "alice")
            await system.until(lambda: system.conn.fetchval("select true from erasures where id = $1", erasure_id))
    async with running_system(database_url, own_temporal.address, scripted, like=system) as system:
        await run_erase(system.settings, system.tenant, "alice", yes=True)
        receipt = json.loads(capsys.readouterr().out)
        assert receipt["erasure_id"] == str(erasure_id), "one at a time: who comes second follows the first"
        assert sorted(receipt["session_ids"]) == ["idle", "live", "lost", "waits"]
        rows = receipt["rows"]
        assert (rows["sessions"], rows["turns"], rows["idempotency_keys"], receipt["verified"]) == (4, 4, 1, True)
        assert receipt["workflow_runs"] == 5, "one each, and one that ended the lost session"
        assert await remains(WORD, system.conn, system.temporal) == set()
        left = await system.conn.fetch("select session_id from sessions order by 1")
        assert [row["session_id"] for row in left] == ["bobs", "later"]
        assert await in_tables(LATER, system.conn) >= {"messages", "events"}
        await _readable_to_admins_and_the_person(system, erasure_id)
        acts = await system.conn.fetch("select principal, target, facts from audit where action = 'erase' and target is not null")
        assert [(act["target"], json.loads(act["facts"])) for act in acts] == [("alice", {"erasure_id": str(erasure_id)})]
        assert acts[0]["principal"].startswith("operator:")
        assert await system.conn.fetchval("select count(*) from audit where action = 'erase' and session_uid is not null") == 4


async def _live_sessions(system: System) -> None:
    """One of Bob's, and Alice's: one that is made after her erasure, and four that go with it, the last one in the middle of a turn."""
    await say(system, "later", LATER, ALICE)
    await system.conn.execute("update sessions set created_at = now() + interval '1 hour'")
    await say(system, "bobs", "hello", BOB)
    for session in ("idle", "waits", "lost"):
        await say(system, session, WORD, ALICE)
    await system.workflow("lost").terminate()
    titled = await system.http.patch("/api/sessions/idle", json={"title": WORD}, headers=ALICE | {"idempotency-key": WORD})
    assert titled.status_code == 200
    await say(system, "live", WORD, ALICE, wait=False)
    await system.until(lambda: len(system.script.requests) == 6)


async def _readable_to_admins_and_the_person(system: System, erasure_id: UUID) -> None:
    path = f"/api/erasures/{erasure_id}"
    assert [(await system.http.get(path, headers=who)).status_code for who in ({}, ALICE)] == [200, 200]
    foreign = await system.http.get(path, headers=BOB)
    absent = await system.http.get("/api/erasures/00000000-0000-4000-8000-000000000000", headers=BOB)
    nonsense = await system.http.get("/api/erasures/nonsense", headers=BOB)
    assert foreign.status_code == 404 and foreign.content == absent.content == nonsense.content


async def test_an_erasure_that_nobody_can_confirm_is_refused(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    async with running_system(database_url, temporal_address) as system:
        await say(system, "s1", WORD, ALICE)
        with pytest.raises(SetupError, match=r"sessions of 'alice' in tenant .*: 1; nobody can be asked"):
            await run_erase(system.settings, system.tenant, "alice", yes=False)
        with pytest.raises(SetupError, match="the principal is empty"):
            await run_erase(system.settings, system.tenant, "", yes=True)
        await run_erase(system.settings, "elsewhere", "alice", yes=True)
        assert json.loads(capsys.readouterr().out)["session_ids"] == []
        assert await system.conn.fetchval("select count(*) from sessions") == 1


async def test_s20_an_erasure_whose_workflow_somebody_ended_goes_on(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Ended before Temporal has removed the runs: a session's is gone on with by its id or by its owner's, and the owner's by who asks again."""
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    async with running_system(database_url, temporal_address, script(says(WORD))) as system:
        for session in ("one", "two", "three"):
            await say(system, session, WORD, ALICE)
        with monkeypatch.context() as held:
            held.setattr(Runs, "delete", not_yet)
            alone, whole = await _erasures_that_somebody_ends(system)
        await say(system, "four", WORD, ALICE)
        await run_again(system.settings, UUID(alone))
        await run_erase(system.settings, system.tenant, "alice", yes=True)
        await run_again(system.settings, whole)
        first, second, third = (json.loads(text + "}") for text in capsys.readouterr().out.split("\n}\n")[:3])
        assert (first["session_ids"], first["verified"], first["rows"]["sessions"]) == (["one"], True, 1)
        assert second == third and (second["erasure_id"], second["verified"]) == (str(whole), True)
        assert (sorted(second["session_ids"]), second["rows"]["sessions"]) == (["four", "three", "two"], 3)
        assert await in_tables(WORD, system.conn) == set()
        with pytest.raises(SetupError, match="there is no erasure"):
            await run_again(system.settings, UUID(int=0))


async def _erasures_that_somebody_ends(system: System) -> tuple[str, UUID]:
    """One session's by its id, and its owner's with the two sessions that are left."""
    alone = (await system.http.delete("/api/sessions/one")).json()["erasure_id"]
    await ended(system, f"erasure/{alone}")
    whole = await start_erasure(system.kit.db, system.temporal, system.settings.task_queue, system.tenant, "alice")
    parts = await system.until(lambda: system.conn.fetch(PARTS, whole))
    await ended(system, principal_erasure_workflow_id(system.tenant, "alice"))
    for part in parts:
        await ended(system, f"erasure/{part['id']}")
    return alone, whole


async def not_yet(runs: Runs, run_id: str) -> None:
    """Temporal takes its time to remove a run, and no erasure is over before it has."""


async def ended(system: System, workflow_id: str) -> None:
    await system.until(lambda: Runs(system.temporal, workflow_id).goes_on())
    await system.temporal.get_workflow_handle(workflow_id).terminate()


async def stored(system: System, workflow_id: str, text: str) -> UUID:
    """Stores a payload that no history refers to: its request was refused, or its process died."""
    context = StorageDriverStoreContext(target=StorageDriverWorkflowInfo(namespace="default", id=workflow_id))
    (claim,) = await PostgresDriver(system.kit.db).store(context, [Payload(data=text.encode())])
    return UUID(claim.claim_data["key"])


async def test_payloads_that_no_history_refers_to_go_and_those_of_the_living_stay(
    database_url: str,
    temporal_address: str,
    own_temporal: TemporalServer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    scripted = script(calls(("h1", "open_page", {"url": "u"})), says("seen"), says("again"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        await system.resume("s1", "h1", "x" * 200_000)
        workflow_id = system.workflow("s1").id
        await system.listed(workflow_id)
        used = {row["key"] for row in await system.conn.fetch("select key from payloads")}
        left, nobodys = await stored(system, workflow_id, WORD), await stored(system, "session/default/nobody", WORD)
        leftovers, now = Leftovers([PostgresPayloads(system.kit.db)], system.temporal, workflow_id), datetime.now(UTC)
        assert used and keys_of(await leftovers.older_than(now)) == [left]
        with pytest.raises(StillInFlight):
            await leftovers.of_ended(now, now)
        assert keys_of(await leftovers.of_ended(now, now + timedelta(seconds=91))) == [left]
        await run_collect(system.settings, timedelta(hours=1))
        assert await keys(system) == used | {left, nobodys}, "the young ones may be on their way"
        await system.conn.execute("update payloads set created_at = created_at - interval '2 hours'")
        monkeypatch.setenv("TEMPORAL_ADDRESS", own_temporal.address)
        with pytest.raises(SetupError, match="nothing was removed"):
            await run_collect(system.settings, timedelta(hours=1))
        assert await keys(system) == used | {left, nobodys}
        monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
        await run_collect(system.settings, timedelta(hours=1))
        assert await keys(system) == used
        assert capsys.readouterr().out.splitlines()[-1] == "postgres: payloads of 2 workflows looked at, 2 removed"
        await system.workflow("s1").signal("roll")
        assert (await system.chat("s1", "and now?"))["content"] == "again"


def keys_of(found: Found) -> list[UUID]:
    return [UUID(key) for keys in found.values() for key in keys]


async def keys(system: System) -> set[Any]:
    return {row["key"] for row in await system.conn.fetch("select key from payloads")}
