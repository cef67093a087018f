"""The worker of the floor or of a peer: `python -m benchmarks.others_worker floor|peer ADDRESS`."""

import asyncio
import sys

from pydantic_ai.durable_exec.temporal import PydanticAIPlugin
from temporalio.client import Client
from temporalio.worker import Worker

from benchmarks.floor import FLOOR_QUEUE, FloorWorkflow, nothing
from benchmarks.peer import PEER_QUEUE, PeerWorkflow
from benchmarks.process import until_stopped


async def _worker(which: str, address: str) -> Worker:
    if which == "floor":
        return Worker(await Client.connect(address), task_queue=FLOOR_QUEUE, workflows=[FloorWorkflow], activities=[nothing])
    return Worker(await Client.connect(address, plugins=[PydanticAIPlugin()]), task_queue=PEER_QUEUE, workflows=[PeerWorkflow])


async def serve(which: str, address: str) -> None:
    """Works until the process is ended."""
    async with await _worker(which, address):
        await until_stopped()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
