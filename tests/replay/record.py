"""`python -m tests.replay.record [story …]` tells the stories and keeps their histories, which every later release must still replay.

A history that is kept already is not overwritten: it is what an older release wrote. Remove it to record it anew.
"""

import asyncio
import os
import re
import socket
import sys
from pathlib import Path

from temporalio.client import WorkflowHistory

from tests import services
from tests.models import Script
from tests.replay.stories import STORIES
from tests.system import System, running_system

HISTORIES = Path(__file__).with_name("histories")


async def histories_of(system: System, session: str) -> list[WorkflowHistory]:
    """Every run of a session, oldest first."""
    workflow_id = system.workflow(session).id
    await asyncio.sleep(0.5)  # the list follows the runs at a small distance
    runs = [run async for run in system.temporal.list_workflows(f"WorkflowId = '{workflow_id}'")]
    handles = [system.temporal.get_workflow_handle(workflow_id, run_id=run.run_id) for run in sorted(runs, key=lambda run: run.start_time)]
    return [await handle.fetch_history() for handle in handles]


def impersonal(text: str) -> str:
    """A history without the name of the machine that it was recorded on."""
    text = re.sub(r'"identity": "[^"]*"', '"identity": "recorder"', text)
    return re.sub(rf'"\d*@?{re.escape(socket.gethostname())}-([0-9a-f]+)"', r'"sticky-\1"', text)


async def tell(name: str, database_url: str, address: str) -> list[WorkflowHistory]:
    """Tells one story and answers the histories of its session."""
    story, behaviours = STORIES[name]
    async with running_system(database_url, address, Script(list(behaviours))) as system:
        await story(system)
        return await histories_of(system, name)


async def _record(names: list[str], address: str, url: str) -> None:
    for name in names:
        for number, history in enumerate(await tell(name, url, address), 1):
            path = HISTORIES / f"{name}.{number}.json"
            if not path.exists():
                path.write_text(impersonal(history.to_json()) + "\n")
                sys.stdout.write(f"{path.name}: {len(history.events)} events\n")


def main() -> None:
    """Records what is missing."""
    os.environ.setdefault("OUTLAST_SIGNING__KEYS", services.SIGNING_KEY)
    HISTORIES.mkdir(exist_ok=True)
    with services.running_temporal() as temporal, services.running_postgres() as postgres:
        asyncio.run(services.make_template(postgres))
        asyncio.run(_record(sys.argv[1:] or list(STORIES), temporal.address, postgres.url(services.TEMPLATE)))


if __name__ == "__main__":
    main()
