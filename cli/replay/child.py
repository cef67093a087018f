"""One of the processes that replay side by side: paths of histories come on stdin, as a line of JSON each, and two verdicts for each go out on
stdout: what is known before the replay, and its outcome.

Python runs one workflow at a time per process, so a batch is as quick as there are processes. The settings are the environment's,
as a worker's are, with the data folder of the argument; the database, or the bucket, is asked for payloads that histories only refer to.
"""

import asyncio
import json
import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path

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
from cli.replay.cause import Overheard, cause, lacks_payload
from cli.replay.erased import ERASED, Erased
from cli.replay.history import NoHistory, has_decisions, read
from cli.replay.verdict import Verdict, parted, said
from cli.running import attempt, leave
from cli.secrets import with_secrets
from settings import Settings
from worker import WORKFLOWS, flow_digest, workflow_runner
from workflows.contracts.errors import SetupError
from workflows.contracts.naming import WORKFLOW_TYPES

QUIET = TelemetryConfig(logging=None)
"""The SDK's core writes what it thinks of a history to stdout; here the verdict says it."""


class Judge:
    """Replays histories with the converter and the sandbox of a worker."""

    def __init__(self, converter: DataConverter, erased: Erased) -> None:
        self._erased = erased
        self._overheard = Overheard()
        self._replayer = Replayer(
            workflows=WORKFLOWS,
            data_converter=converter,
            workflow_runner=workflow_runner(),
            build_id=flow_digest(),
            runtime=Runtime(telemetry=QUIET),
        )

    async def judge(self, known: Verdict, history: WorkflowHistory) -> Verdict:
        """Replays one history; `known` is what is known about it before. Never raises for what is wrong with it."""
        clock = time.perf_counter()
        self._overheard.take()
        try:
            result = await self._replayer.replay_workflow(history, raise_on_replay_failure=False)
            failure: BaseException | None = result.replay_failure
        except Exception as error:
            failure = error
        seconds = time.perf_counter() - clock
        if failure is None:
            return known.model_copy(update={"seconds": seconds})
        heard = self._overheard.take()
        if heard is not None and lacks_payload(heard) and await self._erased.has(history):
            return known.model_copy(update={"seconds": seconds, "kind": "erased", "detail": ERASED})
        why = cause(heard) if heard else ""
        if not isinstance(failure, workflow.NondeterminismError):
            return known.model_copy(update={"seconds": seconds, "kind": "failed", "detail": why or said(failure)})
        detail = said(failure)
        event, event_type = parted(detail)
        if why:
            detail = f"{detail}; before that: {why}"
        return known.model_copy(update={"seconds": seconds, "kind": "differs", "detail": detail, "event": event, "event_type": event_type})


def looked_at(path: Path) -> tuple[Verdict, WorkflowHistory | None]:
    """What a file says without a replay, as a verdict, and its history if that is to be replayed."""
    try:
        history = read(path)
    except NoHistory as error:
        detail = f"no workflow history: {error}"
        return Verdict(source=str(path), workflow_type="-", workflow_id=path.stem, kind="unknown", detail=detail), None
    began = history.events[0].workflow_execution_started_event_attributes
    verdict = Verdict(
        source=str(path),
        workflow_type=began.workflow_type.name,
        workflow_id=history.workflow_id,
        run_id=began.original_execution_run_id,
        events=len(history.events),
        kind="same",
    )
    if verdict.workflow_type not in WORKFLOW_TYPES:
        detail = f"no workflow of this release is called {verdict.workflow_type}"
        return verdict.model_copy(update={"kind": "unknown", "detail": detail}), None
    if not has_decisions(history):
        # The SDK would wait for ever for the end of a replay that it never begins.
        return verdict.model_copy(update={"kind": "skipped", "detail": "nothing to replay yet: no worker has completed a task of it"}), None
    return verdict, history


def _hush(settings: Settings) -> None:
    """Panics of the SDK's core come with their stacks; those are for whoever looks into one (OUTLAST_LOG__LEVEL=debug)."""
    if settings.log.level != "debug":
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        os.close(nowhere)


async def _serve(data_dir: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    logging.getLogger().addHandler(logging.NullHandler())  # verdicts say what there is to say
    os.dup2(2, 1)  # whatever else writes to stdout must not be taken for a verdict
    settings = load_settings(data_dir=Path(data_dir))
    database = storage = None
    # Kept histories may well do without a database.
    with suppress(SetupError):
        settings = with_secrets(find_endpoints(settings)).settings
        database = await Database.open(settings.database)
        storage = Storage(settings, database)
    external = storage.external(read_only=True) if storage else None
    _hush(settings)
    converter = data_converter(external, codec_of(settings.codec.keys))
    judge = Judge(converter, Erased(database, converter))
    while line := await asyncio.to_thread(sys.stdin.readline):
        known, history = await asyncio.to_thread(looked_at, Path(json.loads(line)))
        print(known.model_dump_json(), file=answers, flush=True)
        outcome = known if history is None else await judge.judge(known, history)
        print(outcome.model_dump_json(), file=answers, flush=True)
    if storage:
        await storage.close()


if __name__ == "__main__":
    leave(attempt(lambda: asyncio.run(_serve(sys.argv[1]))))
