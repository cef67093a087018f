"""Histories that older releases wrote replay with the worker's own converter and sandbox; a changed workflow is found out."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer

from activities.db.client import data_converter
from tests.models import says, script, waits
from tests.replay.changed import ChangedSession
from tests.replay.record import HISTORIES, histories_of
from tests.replay.stories import STORIES
from tests.system import running_system
from worker import WORKFLOWS, flow_digest, workflow_runner

ROOT = Path(__file__).parents[2]
KEPT = sorted(HISTORIES.glob("*.json"))


def replayer(*workflows: type) -> Replayer:
    return Replayer(
        workflows=workflows or WORKFLOWS, data_converter=data_converter(None), workflow_runner=workflow_runner(), build_id=flow_digest()
    )


def kept(path: Path) -> WorkflowHistory:
    text = path.read_text()
    return WorkflowHistory.from_json(started_as(json.loads(text)), text)


def started_as(history: dict[str, list[dict[str, dict[str, str]]]]) -> str:
    """The workflow's id, from its first event."""
    return history["events"][0]["workflowExecutionStartedEventAttributes"]["workflowId"]


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
async def test_each_kept_history_replays(path: Path) -> None:
    await replayer().replay_workflow(kept(path))


def test_each_story_is_kept() -> None:
    assert {path.name.split(".")[0] for path in KEPT} == set(STORIES)


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.stem)
async def test_a_changed_order_of_commands_is_found(path: Path) -> None:
    result = await replayer(ChangedSession).replay_workflow(kept(path), raise_on_replay_failure=False)
    assert isinstance(result.replay_failure, workflow.NondeterminismError)


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
        (history,) = await histories_of(system, "second")
    (tmp_path / "second.json").write_text(history.to_json())
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "cli.main", "replay", str(tmp_path / "second.json")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
