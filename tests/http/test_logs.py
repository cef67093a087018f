"""Log lines of real turns as JSON: each says what it is about, none says what was said."""

import io
import json
import sys
from collections.abc import Callable

import pytest
from temporalio import activity, workflow

from cli import spans
from cli.logs import keep_ids_out_of_messages, log_to_stderr
from settings import LogSettings, TracingSettings
from tests.models import calls, raises, says, script
from tests.spans import Spans
from tests.system import running_system

Lines = Callable[[], list[dict[str, str]]]

SECRETS = ("walrus", "petrel", "gannet", "puffin")


@pytest.fixture
def logged(monkeypatch: pytest.MonkeyPatch) -> Lines:
    """What this process has logged by now, each line parsed."""
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    log_to_stderr(LogSettings(format="json"), spans.ids)
    for adapter, marked in ((activity.logger, "activity_info_on_message"), (workflow.logger, "workflow_info_on_message")):
        monkeypatch.setattr(adapter, marked, getattr(adapter, marked))  # given back when the test ends
    keep_ids_out_of_messages()
    return lambda: [json.loads(line) for line in written.getvalue().splitlines()]


async def test_every_line_about_a_session_has_its_ids_and_no_content(database_url: str, temporal_address: str, logged: Lines) -> None:
    Spans()
    scripted = script(calls(("c1", "broken", {}), text="petrel"), says("gannet"), raises(ValueError("puffin")))
    async with running_system(database_url, temporal_address, scripted, tracing=TracingSettings(enabled=True)) as system:
        first = await system.chat("s1", "walrus")
        second = await system.chat("s1", "walrus")
        uid = str(await system.conn.fetchval("select session_uid from sessions"))
        ids = {"tenant": system.tenant, "session_id": "s1", "session_uid": uid, "workflow_id": system.workflow("s1").id}
        await system.until(lambda: [line for line in logged() if line["message"] == "turn failed: internal"])
    about = [line for line in logged() if "session_id" in line]
    assert [(line["level"], line["message"], line["turn_id"]) for line in about] == [
        ("warning", "a server tool failed", first["turn_id"]),
        ("info", "turn answered", first["turn_id"]),
        ("warning", "a model request failed: internal", second["turn_id"]),
        ("warning", "turn failed: internal", second["turn_id"]),
    ]
    assert [line for line in about if not ids.items() <= line.items()] == []
    assert [line for line in about if not {"attempt", "run_id", "trace_id", "span_id", "time", "logger"} <= line.keys()] == []
    assert {"call_id": "c1", "tool_name": "broken", "activity": "run_tool", "activity_attempt": "1"}.items() <= about[0].items()
    assert [line["exception"].splitlines()[-1] for line in about if "exception" in line] == ["RuntimeError", "ValueError"]
    assert [word for word in SECRETS if word in json.dumps(logged())] == []
