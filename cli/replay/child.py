"""One of the processes that replay side by side: paths of histories come on stdin, as a line of JSON each, and verdicts go out on stdout.

Python runs one workflow at a time per process, so a batch is as quick as there are processes. The settings are the environment's,
as a worker's are, with the data folder of the argument; the database, or the bucket, is asked for payloads that histories only refer to.
"""

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.runtime import Runtime, TelemetryConfig
from temporalio.worker import Replayer

from activities.db.client import data_converter
from activities.db.encryption import codec_of
from activities.db.pool import Database
from activities.db.storage import Storage
from cli.endpoints import find_endpoints
from cli.environment import load_settings
from cli.replay.verdict import Verdict, parted, said
from cli.running import leave
from cli.secrets import with_secrets
from worker import WORKFLOWS, flow_digest, workflow_runner
from workflows.contracts.errors import SetupError
from workflows.contracts.naming import WORKFLOW_TYPES

QUIET = TelemetryConfig(logging=None)
"""The SDK's core writes what it thinks of a history to stdout; here the verdict says it."""


class Judge:
    """Replays histories with the converter and the sandbox of a worker."""

    def __init__(self, converter: DataConverter) -> None:
        self._replayer = Replayer(
            workflows=WORKFLOWS,
            data_converter=converter,
            workflow_runner=workflow_runner(),
            build_id=flow_digest(),
            runtime=Runtime(telemetry=QUIET),
        )

    async def judge(self, path: Path) -> Verdict:
        """Replays one history. Never raises for what is wrong with it."""
        try:
            text = path.read_text()
            events = json.loads(text)["events"]
            began: dict[str, Any] = events[0]["workflowExecutionStartedEventAttributes"]
            named: str = began["workflowType"]["name"]
        except (OSError, ValueError, LookupError, TypeError) as error:
            detail = f"no workflow history: {type(error).__name__}: {error}"
            return Verdict(source=str(path), workflow_type="-", workflow_id=path.stem, kind="unknown", detail=detail)
        verdict = Verdict(
            source=str(path),
            workflow_type=named,
            workflow_id=began.get("workflowId") or path.stem,
            run_id=began.get("originalExecutionRunId", ""),
            events=len(events),
            kind="same",
        )
        if named not in WORKFLOW_TYPES:
            return verdict.model_copy(update={"kind": "unknown", "detail": f"no workflow of this release is called {named}"})
        return await self._replay(verdict, text)

    async def _replay(self, verdict: Verdict, text: str) -> Verdict:
        clock = time.perf_counter()
        try:
            result = await self._replayer.replay_workflow(
                WorkflowHistory.from_json(verdict.workflow_id, text), raise_on_replay_failure=False
            )
            failure: BaseException | None = result.replay_failure
        except Exception as error:
            failure = error
        seconds = time.perf_counter() - clock
        if failure is None:
            return verdict.model_copy(update={"seconds": seconds})
        detail = said(failure)
        event, event_type = parted(detail)
        kind = "differs" if isinstance(failure, workflow.NondeterminismError) else "failed"
        return verdict.model_copy(update={"seconds": seconds, "kind": kind, "detail": detail, "event": event, "event_type": event_type})


async def _serve(data_dir: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else writes to stdout must not be taken for a verdict
    settings = load_settings(data_dir=Path(data_dir))
    storage = None
    # Kept histories may well do without a database.
    with suppress(SetupError):
        settings = with_secrets(find_endpoints(settings)).settings
        storage = Storage(settings, await Database.open(settings.database))
    external = storage.external(read_only=True) if storage else None
    judge = Judge(data_converter(external, codec_of(settings.codec.keys)))
    while line := await asyncio.to_thread(sys.stdin.readline):
        verdict = await judge.judge(Path(json.loads(line)))
        answers.write(verdict.model_dump_json() + "\n")
        answers.flush()
    if storage:
        await storage.close()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
    leave(0)
