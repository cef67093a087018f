"""`outlast replay`: the gate that a release passes before it meets running sessions."""

import asyncio
import os
import shutil
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.environment import load_settings
from cli.replay.run import Batch, run_replay
from cli.replay.source import since
from cli.replay.verdict import Verdict, parted
from tests.models import says, script
from tests.replay.record import HISTORIES
from tests.system import running_system
from worker import WORKFLOWS
from workflows.contracts.errors import SetupError
from workflows.contracts.naming import WORKFLOW_TYPES

ROOT = Path(__file__).parents[2]
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOWHERE: Mapping[str, str] = {}
BEGINS = "        head = self.state.head\n        first_attempt = job.turn.attempt == 1\n"
CHANGE = "        workflow.upsert_memo({'hasty': True})\n"


async def replay(*arguments: object, cwd: Path = ROOT, at: Mapping[str, str] = NOWHERE) -> tuple[int | None, str, str]:
    """Runs the command; exit code, stdout and stderr."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OUTLAST_", "TEMPORAL_"))}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli.main", "replay", "--jobs", "1", *map(str, arguments)),
        cwd=cwd,
        env={**environment, "OUTLAST_DATA_DIR": "none", "COLUMNS": "120", **at},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 100)
    return process.returncode, out.decode(), err.decode()


def told(junit: Path) -> tuple[int, int]:
    """How many histories a build server is told of, and how many of them fail."""
    suites = list(ElementTree.parse(junit).getroot())
    return sum(int(suite.get("tests", 0)) for suite in suites), sum(int(suite.get("failures", 0)) for suite in suites)


def failures(junit: Path) -> list[ElementTree.Element]:
    return list(ElementTree.parse(junit).getroot().iter("failure"))


def test_the_types_of_the_list_filter_are_those_that_workers_run() -> None:
    assert {workflow.__name__ for workflow in WORKFLOWS} == set(WORKFLOW_TYPES)


def test_a_difference_names_the_event_and_its_kind_leaves_numbers_out() -> None:
    told = "Nondeterminism error: TimerMachine does not handle HistoryEvent(id: {0}, ActivityTaskScheduled)"
    verdicts = [
        Verdict(source="", workflow_type="A", workflow_id=str(number), kind="differs", detail=told.format(number)) for number in (14, 27)
    ]
    assert parted(verdicts[0].detail) == (14, "ActivityTaskScheduled")
    assert verdicts[0].sort == verdicts[1].sort


async def test_the_kept_histories_pass_the_gate_and_a_changed_workflow_does_not(tmp_path: Path) -> None:
    code, out, err = await replay(HISTORIES, "--junit", tmp_path / "agree.xml")
    assert (code, err) == (0, ""), out
    assert told(tmp_path / "agree.xml") == (len(list(HISTORIES.glob("*.json"))), 0)

    release = tmp_path / "release"
    for part in ("workflows", "activities", "cli", "profiles"):
        shutil.copytree(ROOT / part, release / part)
    for part in ("settings.py", "worker.py"):
        shutil.copy(ROOT / part, release / part)
    jobs = release / "workflows" / "session_jobs.py"
    source = jobs.read_text()
    assert BEGINS in source
    jobs.write_text(source.replace(BEGINS, BEGINS + CHANGE, 1))
    code, out, err = await replay(HISTORIES, "--junit", tmp_path / "differ.xml", cwd=release)
    assert (code, err) == (1, ""), out
    assert "differs at event" in out and "more like it" in out
    assert {failure.get("type") for failure in failures(tmp_path / "differ.xml")} == {"differs"}
    total, differ = told(tmp_path / "differ.xml")
    assert total / 2 < differ < total, "what has no turn is what it was"


async def test_what_is_no_history_is_a_verdict(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{}")
    (tmp_path / "b.json").write_text(
        '{"events": [{"eventId": "1", "workflowExecutionStartedEventAttributes": {"workflowType": {"name": "Gone"}}}]}'
    )
    code, out, _ = await replay(tmp_path)
    assert code == 1 and "no workflow history" in out and "no workflow of this release is called Gone" in out


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (Batch([]), "name histories to replay, or --from-server"),
        (Batch([Path("here")], from_server=True), "name histories to replay, or --from-server"),
        (Batch([Path("absent.json")]), "absent.json: no such file or folder"),
        (Batch([Path()], limit=3), "go with --from-server"),
        (Batch([], from_server=True), "no database"),
    ],
)
async def test_a_command_line_that_proves_nothing_is_refused(batch: Batch, said: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=said):
        await run_replay(load_settings({}, data_dir=tmp_path), batch)


@pytest.mark.parametrize("text", ["yesterday", "2026-01-31T12:00:00", "7", "d", "-1d"])
def test_since_needs_a_time_with_an_offset_or_how_long_ago(text: str) -> None:
    with pytest.raises(SetupError, match="--since"):
        since(text, NOON)
    assert since("1.5h", NOON) == datetime(2026, 1, 31, 10, 30, tzinfo=UTC)
    assert since("2026-01-31T14:00:00+02:00", NOON) == NOON


async def test_a_servers_sessions_are_replayed_with_what_they_keep_elsewhere(
    database_url: str, temporal_address: str, tmp_path: Path
) -> None:
    """One of the messages is too large for a history, which refers to it."""
    async with running_system(database_url, temporal_address, script(says("a"), says("b"))) as system:
        await system.chat("small")
        await system.chat("large", "x" * 300_000)
        where = {"TEMPORAL_ADDRESS": temporal_address, "OUTLAST_DATABASE__URL": database_url}
        ours = f"WorkflowId IN ('{system.workflow('small').id}', '{system.workflow('large').id}')"
        await asyncio.sleep(0.5)  # the list follows the runs at a small distance
        code, out, err = await replay("--from-server", "--query", ours, "--since", "1h", "--save", tmp_path / "kept", at=where)
        assert (code, err) == (0, ""), out + err
        assert len(list((tmp_path / "kept").iterdir())) == 2
        code, out, err = await replay("--from-server", "--query", "nonsense", at=where)
        assert code == 1 and "--query" in err and err.count("\n") == 1
        code, _, err = await replay("--from-server", "--query", "WorkflowId = 'nobody'", "--limit", "1", at=where)
        assert code == 1 and "nothing was proven" in err
