"""`python -m tests.replay.record [story …]` tells the stories and keeps their histories, which every later release must still replay.

A history that is kept already is not overwritten: it is what an older release wrote. Remove it to record it anew.
"""

import asyncio
import json
import os
import re
import socket
import sys
from base64 import b64encode
from pathlib import Path

from temporalio.client import WorkflowHistory

from cli.services.postgres import PostgresServer
from tests import services
from tests.models import Script
from tests.replay.stories import SEALED, STORIES
from tests.replay.telling import Story, Told
from tests.system import System, running_system

HISTORIES = Path(__file__).with_name("histories")
SEALED_HISTORIES = Path(__file__).with_name("sealed")
PAYLOADS = SEALED_HISTORIES / "payloads.txt"
"""Payloads that sealed histories refer to: key, workflow id and bytes, a line each."""


async def runs_of(system: System, query: str) -> list[WorkflowHistory]:
    """Every run of the workflows that fit, oldest first."""
    await asyncio.sleep(0.5)  # the list follows the runs at a small distance
    runs = [run async for run in system.temporal.list_workflows(query)]
    handles = [system.temporal.get_workflow_handle(run.id, run_id=run.run_id) for run in sorted(runs, key=lambda run: run.start_time)]
    return [await handle.fetch_history() for handle in handles]


def impersonal(history: WorkflowHistory) -> str:
    """A history, one event a line, without the name of the machine that it was recorded on."""
    text = re.sub(r'"identity": "[^"]*"', '"identity": "recorder"', history.to_json())
    text = re.sub(rf'"\d*@?{re.escape(socket.gethostname())}-([0-9a-f]+)"', r'"sticky-\1"', text)
    events = (json.dumps(event, separators=(",", ":")) for event in json.loads(text)["events"])
    return '{"events":[\n' + ",\n".join(events) + "\n]}\n"


async def tell(name: str, story: Story, database_url: str, address: str) -> list[WorkflowHistory]:
    """Tells one story and answers the histories of all workflows that took part. Those of a story that is sealed keep their payloads."""
    scripted = Script(list(story.behaviours))
    system: System | None = None
    told: list[WorkflowHistory] = []
    for telling in story.tells:
        async with running_system(database_url, address, scripted, like=system, interceptors=[story.between], **story.settings) as system:
            await telling(Told.of(system))
            told = [*story.kept, *await runs_of(system, f"TaskQueue = '{system.settings.task_queue}'")]
            if name in SEALED:
                await _keep_payloads(system)
    return told


async def _keep_payloads(system: System) -> None:
    rows = await system.conn.fetch("select key, workflow_id, body from payloads order by created_at, key")
    PAYLOADS.write_text("".join(f"{row['key']} {row['workflow_id']} {b64encode(row['body']).decode()}\n" for row in rows))


async def _record(names: list[str], address: str, postgres: PostgresServer) -> None:
    for name in names:
        folder, story = (SEALED_HISTORIES, SEALED[name]) if name in SEALED else (HISTORIES, STORIES[name])
        if list(folder.glob(f"{name}.*.json")):
            continue
        async with services.fresh_database(postgres) as url:
            for number, history in enumerate(await tell(name, story, url, address), 1):
                path = folder / f"{name}.{number}.json"
                path.write_text(impersonal(history))
                sys.stdout.write(f"{path.name}: {len(history.events)} events, {path.stat().st_size} bytes\n")


def main() -> None:
    """Records what is missing."""
    os.environ.setdefault("OUTLAST_SIGNING__KEYS", services.SIGNING_KEY)
    for folder in (HISTORIES, SEALED_HISTORIES):
        folder.mkdir(exist_ok=True)
    with services.running_temporal() as temporal, services.running_postgres() as postgres:
        asyncio.run(services.make_template(postgres))
        asyncio.run(_record(sys.argv[1:] or [*STORIES, *SEALED], temporal.address, postgres))


if __name__ == "__main__":
    main()
