"""Histories that older releases wrote replay with the worker's own converter and sandbox; a changed workflow is found out."""

import asyncio
from base64 import b64decode
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import asyncpg
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer, WorkflowReplayResults, WorkflowRunner

from activities.db.client import data_converter
from activities.db.encryption import codec_of
from activities.db.pool import Database
from activities.db.storage import Storage
from settings import DatabaseSettings, Settings
from tests import services
from tests.commands import ran
from tests.models import says, script, waits
from tests.replay.changed import ChangedSession
from tests.replay.corpus import KEPT, SEALED, kept, used
from tests.replay.record import PAYLOADS
from tests.replay.told_lives import KEYS
from tests.system import running_system
from worker import WORKFLOWS, flow_digest, workflow_runner


def replayer(*workflows: type, converter: DataConverter | None = None, runner: WorkflowRunner | None = None) -> Replayer:
    return Replayer(
        workflows=workflows or WORKFLOWS,
        data_converter=converter or data_converter(None),
        workflow_runner=runner or workflow_runner(),
        build_id=flow_digest(),
    )


async def replayed(judge: Replayer, paths: Sequence[Path]) -> WorkflowReplayResults:
    """What comes of all of them, one after the other in this process."""

    async def each() -> AsyncIterator[WorkflowHistory]:
        for path in paths:
            yield kept(path)

    return await judge.replay_workflows(each(), raise_on_replay_failure=False)


async def test_each_kept_history_replays() -> None:
    assert dict((await replayed(replayer(), KEPT)).replay_failures) == {}


async def test_a_changed_order_of_commands_is_found_in_each_session_that_had_a_turn() -> None:
    with_turns = [path for path in KEPT if "activity run_step" in used(kept(path).events)]
    failures = (await replayed(replayer(ChangedSession), with_turns)).replay_failures
    assert len(failures) == len(with_turns) > len(KEPT) / 2
    assert {type(failure) for failure in failures.values()} == {workflow.NondeterminismError}


async def test_s60_sealed_histories_replay_with_their_keys_and_payloads_and_not_without(database_url: str) -> None:
    """What is encrypted, and what is elsewhere: in Postgres, as a worker finds it."""
    conn = await asyncpg.connect(database_url)
    rows = [line.split(" ") for line in PAYLOADS.read_text().splitlines()]
    stored = [(key, workflow_id, b64decode(body)) for key, workflow_id, body in rows]
    await conn.executemany("insert into payloads (key, workflow_id, body, created_at) values ($1, $2, $3, now())", stored)
    settings = Settings(database=DatabaseSettings(url=services.as_runtime(database_url)))
    database = await Database.open(settings.database)
    outside, codec = Storage(settings, database).external(read_only=True), codec_of(KEYS.keys)
    try:
        whole = replayer(converter=data_converter(outside, codec))
        assert dict((await replayed(whole, SEALED)).replay_failures) == {}
        for without in (data_converter(outside), data_converter(None, codec)):
            assert len((await replayed(replayer(converter=without), SEALED)).replay_failures) == len(SEALED)
    finally:
        await database.close()
        await conn.close()


async def test_l11_l10_the_second_of_two_sessions_replays_in_a_fresh_process(
    database_url: str, temporal_address: str, tmp_path: Path
) -> None:
    """Both ran in one worker at once, with an update that crossed a step's end; the other process has seen neither."""
    together = asyncio.Event()
    async with running_system(
        database_url, temporal_address, script(waits(together, "a", "b"), waits(together, "a", "b"), says("c"))
    ) as system:
        sent = [asyncio.create_task(system.chat(session)) for session in ("first", "second")]
        await system.until(lambda: len(system.script.requests) == 2)
        together.set()
        crossing = asyncio.create_task(system.post("/sessions/second/cancel"))
        await asyncio.gather(*sent, crossing)
        await system.chat("second", "more")
        await system.idle("second", 2)
        (history,) = await system.histories("second")
    (tmp_path / "second.json").write_text(history.to_json())
    code, _, err = await ran("replay", tmp_path / "second.json")
    assert code == 0, err
