"""`outlast replay`: the gate that a release passes before it meets running sessions."""

import asyncio
import io
import json
import os
import re
import shutil
import signal
from base64 import b64encode
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

import pytest
from google.protobuf.json_format import MessageToDict
from pydantic import SecretStr
from rich.console import Console
from temporalio.api.common.v1 import Payload

from activities.db.encryption import KEY_BYTES, codec_of
from cli.environment import load_settings
from cli.replay.report import KINDS, WIDTH, differences, summary, write_junit
from cli.replay.run import Batch, run_replay
from cli.replay.source import since
from cli.replay.verdict import Verdict, parted
from tests.commands import NOWHERE, ROOT, began, ran
from tests.io.keys import keys
from tests.models import says, script
from tests.replay.record import HISTORIES, SEALED_HISTORIES
from tests.replay.told_lives import KEYS
from tests.system import running_system
from worker import WORKFLOWS
from workflows.contracts.errors import SetupError
from workflows.contracts.naming import WORKFLOW_TYPES

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
BEGINS = "        head = self.state.head\n        first_attempt = job.turn.attempt == 1\n"
CHANGE = "        workflow.upsert_memo({'hasty': True})\n"


async def replay(*arguments: object, cwd: Path = ROOT, at: Mapping[str, str] = NOWHERE) -> tuple[int | None, str, str]:
    """Runs the command on one core; exit code, stdout and stderr."""
    return await ran("replay", "--jobs", 1, *arguments, cwd=cwd, at=at, seconds=100)


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


def test_a_batch_is_told_in_the_same_order_whichever_history_was_replayed_first(tmp_path: Path) -> None:
    verdicts = [
        Verdict(source=f"{name}.json", workflow_type="A", workflow_id=name, kind="differs", detail=name[0]) for name in ("a1", "a2", "b")
    ]
    assert [line.split()[2] for line in differences(verdicts)] == ["a1,", "b"]
    assert [summary(verdicts[:count], 1.0).caption for count in (1, 2)] == [
        "1 history in 1.0 s, 1.0 a second",
        "2 histories in 1.0 s, 2.0 a second",
    ]
    assert differences(verdicts[::-1]) == differences(verdicts)
    for place, told_so in enumerate((verdicts, verdicts[::-1])):
        write_junit(told_so, tmp_path / f"{place}.xml")
    assert (tmp_path / "0.xml").read_text() == (tmp_path / "1.xml").read_text()


def test_a_summary_names_workflows_and_outcomes_whole_where_there_is_no_terminal() -> None:
    verdicts = [
        Verdict(source="", workflow_type=name, workflow_id="w", events=1_000_000, kind="same", detail="") for name in WORKFLOW_TYPES
    ]
    said = io.StringIO()
    Console(file=said, width=WIDTH).print(summary(verdicts, 1.0))
    assert [name for name in (*WORKFLOW_TYPES, *KINDS) if name not in said.getvalue()] == []


async def test_the_kept_histories_pass_the_gate_and_a_changed_workflow_does_not(tmp_path: Path) -> None:
    code, out, err = await replay(HISTORIES, "--junit", tmp_path / "agree.xml")
    assert (code, err) == (0, ""), out
    assert all(f" {name} " in out for name in WORKFLOW_TYPES), "names are whole where there is no terminal"
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


def run_of(arguments: Payload | None = None, *, named: str = "SessionWorkflow", events: int | None = None, without: int = 0) -> str:
    """A kept history, as JSON: with other arguments, of another workflow, only its first events, or without one of them."""
    found = json.loads((HISTORIES / "turns.1.json").read_text())
    began = found["events"][0]["workflowExecutionStartedEventAttributes"]
    began["workflowType"]["name"] = named
    if arguments is not None:
        began["input"]["payloads"] = [MessageToDict(arguments)]
    return json.dumps({"events": [event for event in found["events"][:events] if event["eventId"] != str(without)]})


async def sealed_by(key_id: str, secret: bytes) -> str:
    """A history whose arguments are encrypted."""
    codec = codec_of([SecretStr(f"{key_id}:{b64encode(secret * KEY_BYTES).decode()}")])
    assert codec is not None
    (payload,) = await codec.encode([Payload(metadata={"encoding": b"json/plain"}, data=b"{}")])
    return run_of(payload)


def said_of(junit: Path) -> dict[str, tuple[str, str]]:
    """By the name of the file, kind and message of what a build server is told."""
    return {Path((found.text or "").split()[-1]).stem: (found.get("type", ""), found.get("message", "")) for found in failures(junit)}


NO_HISTORIES = {
    "absent": ("{}", 'it has no list "events"'),
    "text": ('"events"', 'it has no list "events"'),
    "array": ("[1]", 'it has no list "events"'),
    "none": ('{"events": []}', 'its list "events" is empty'),
    "numbers": ('{"events": [1]}', "what is no event of Temporal"),
    "fields": ('{"events": [{"eventId": "x"}]}', "what is no event of Temporal"),
    "other": ('{"events": [{"eventId": "1"}]}', "its first event is not the start of a workflow"),
    "gap": (run_of(without=4), "it is not whole: where event 4 should be is event 5"),
    "half": ('{"events', "it is not JSON"),
    "deep": ("[" * 100_000, "nested too deep"),
}


async def test_what_can_not_be_replayed_is_a_verdict_that_says_why(tmp_path: Path) -> None:
    """One command: files that are no histories, a type that is gone, arguments that don't fit, no key, and a run that did nothing yet."""
    folder, junit = tmp_path / "histories", tmp_path / "junit.xml"
    folder.mkdir()
    texts = {name: text for name, (text, _) in NO_HISTORIES.items()} | {
        "gone": run_of(named="Gone"),
        "unfit": run_of(Payload(metadata={"encoding": b"json/plain"}, data=b"{}")),
        "keyless": await sealed_by("dev", b"d"),
        "unborn": run_of(events=1),
    }
    for name, text in texts.items():
        (folder / f"{name}.json").write_text(text)
    code, out, err = await replay(folder, "--junit", junit)
    assert (code, err) == (1, ""), out
    told_of = said_of(junit)
    for name, (_, reason) in NO_HISTORIES.items():
        kind, message = told_of.pop(name)
        assert kind == "unknown" and message.startswith("no workflow history: ") and reason in message, (name, message)
    assert told_of == {
        "gone": ("unknown", "no workflow of this release is called Gone"),
        "unfit": ("failed", "SessionStart: tenant: Field required; session_id: Field required"),
        "keyless": (
            "failed",
            "a payload was encrypted with the key dev, and OUTLAST_CODEC__KEYS is empty: set it to the installation's keys",
        ),
    }
    assert all(message in out for _, message in told_of.values())
    assert "nothing to replay yet" in out and "Traceback" not in out and "Error:" not in out
    (skipped,) = ElementTree.parse(junit).getroot().iter("skipped")
    assert "nothing to replay yet" in skipped.get("message", "")


async def test_s60_a_missing_key_another_key_and_lost_payloads_are_told_apart(database_url: str, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    for name, key_id, secret in (("missing", "2026-01", b"a"), ("gone", "2026-02", b"a"), ("another", "other", b"a")):
        (tmp_path / f"{name}.json").write_text(await sealed_by(key_id, secret))
    ring = ",".join(key.get_secret_value() for key in (*KEYS.keys, *keys("other").keys))
    at = {"OUTLAST_DATABASE__URL": database_url, "OUTLAST_CODEC__KEYS": ring}
    code, out, err = await replay(tmp_path, SEALED_HISTORIES / "sealed.1.json", "--junit", junit, at=at)
    assert (code, err) == (1, ""), out
    said = {name: message for name, (kind, message) in said_of(junit).items() if kind == "failed"}
    assert re.fullmatch("payload [0-9a-f-]+ is not stored any more", said.pop("sealed.1"))
    assert said == {
        "missing": "a payload was encrypted with the key 2026-01, which is not in OUTLAST_CODEC__KEYS: add it behind the first one",
        "gone": "a payload was encrypted with the key 2026-02, which is not in OUTLAST_CODEC__KEYS: add it behind the first one",
        "another": "a payload is damaged, or the key other is another one now",
    }
    assert "more like it" not in out


async def test_runs_that_did_nothing_yet_prove_nothing_but_hold_up_no_others(tmp_path: Path) -> None:
    (tmp_path / "unborn.json").write_text(run_of(events=1))
    code, out, err = await replay(tmp_path)
    assert code == 1 and "skipped" in out and "nothing was proven" in err and err.count("\n") == 1
    code, out, err = await replay(tmp_path, HISTORIES / "closed.1.json")
    assert (code, err) == (0, ""), out


async def test_histories_that_come_to_no_end_are_given_up(tmp_path: Path) -> None:
    """A pipe that nobody writes to, and a gap, which numbers hide, that the SDK's core waits at: the process is ended, and another goes on."""
    os.mkfifo(tmp_path / "endless.json")
    history = json.loads(run_of(without=4))
    for number, event in enumerate(history["events"], 1):
        event["eventId"] = str(number)
    (tmp_path / "too.json").write_text(json.dumps(history))
    code, out, err = await replay(tmp_path / "endless.json", tmp_path / "too.json", "--timeout", 4, "--junit", tmp_path / "junit.xml")
    assert (code, err) == (1, ""), out
    given_up = ("failed", "no end after 4 s, the limit for one history (--timeout)")
    assert said_of(tmp_path / "junit.xml") == {"endless": given_up, "too": given_up}


async def test_ctrl_c_ends_the_command_and_its_processes_without_a_word(tmp_path: Path) -> None:
    """As a terminal sends it: to the whole group. Whoever reads the pipe is in the middle of a history."""
    pipe = tmp_path / "endless.json"
    os.mkfifo(pipe)
    async with began("replay", "--jobs", 1, pipe) as process:
        end = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)
        os.killpg(process.pid, signal.SIGINT)
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert (process.returncode, err) == (130, b"") and b"Traceback" not in out
        with pytest.raises(BrokenPipeError):
            os.write(end, b"the reader has gone")
        os.close(end)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (Batch([]), "name histories to replay, or --from-server"),
        (Batch([Path("here")], from_server=True), "here: with --from-server no files are replayed"),
        (Batch([], query="a"), "--query is for the runs of a server: it goes with --from-server"),
        (Batch([Path()], junit=Path("absent/junit.xml")), "--junit absent/junit.xml: No such file"),
        (Batch([Path("absent.json")]), "absent.json: no such file or folder"),
        (Batch([Path()], limit=3), "--limit is for the runs of a server"),
        (Batch([], from_server=True), "no database"),
    ],
)
async def test_a_command_line_that_proves_nothing_is_refused(batch: Batch, said: str, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=said):
        await run_replay(load_settings({}, data_dir=tmp_path), batch)


@pytest.mark.parametrize(
    "text", ["yesterday", "2026-01-31T12:00:00", "7", "d", "-1d", "99999999999d", "9999999d", "0001-01-01T00:00:00+14:00"]
)
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

        async def listed() -> bool:
            return (await system.temporal.count_workflows(ours)).count == 2

        await system.until(listed)
        code, out, err = await replay("--from-server", "--query", ours, "--since", "1h", "--save", tmp_path / "kept", at=where)
        assert (code, err) == (0, ""), out + err
        assert len(list((tmp_path / "kept").iterdir())) == 2
        code, out, err = await replay("--from-server", "--query", "nonsense", at=where)
        assert code == 1 and err.startswith("outlast: --query nonsense: ") and err.count("\n") == 1
        code, _, err = await replay("--from-server", "--query", "WorkflowId = 'nobody'", "--limit", "1", at=where)
        assert code == 1 and "nothing was proven" in err
        await system.conn.execute("delete from payloads")
        code, out, err = await replay("--from-server", "--query", ours, at=where)
        assert (code, err) == (1, "") and "is not stored any more\n  --save FOLDER keeps its history" in out
        assert f"failed: SessionWorkflow {system.workflow('large').id} run " in out and "outlast-replay-" not in out
