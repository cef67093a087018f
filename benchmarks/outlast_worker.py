"""Outlast's worker as it is, with one more model: `instant`. `--uncached`: it reads the conversation anew for every step."""

import argparse

import uvloop

import worker
from activities.context import Conversations
from activities.db.client import connect
from activities.db.pool import Database
from activities.db.storage import Storage
from activities.llm.models import request_settings
from activities.search_attributes import registered
from benchmarks.models import BenchModels
from benchmarks.process import until_stopped
from cli.environment import load_settings
from settings import Settings


async def serve(settings: Settings, address: str, *, cached: bool) -> None:
    """Runs the worker until the process is ended."""
    database = await Database.open(settings.database)
    storage = Storage(settings, database)
    client = await connect(settings, storage, address, for_api=False)
    async with worker.open_kit(settings, database, storage) as kit:
        kit.models = BenchModels(settings)
        request_settings(kit.models.of(settings.model))  # imports what building a provider's model would have imported
        kit.indexed = await registered(client)
        if not cached:
            kit.paths = Conversations(kept_paths=0)
        async with worker.build_worker(client, kit):
            await until_stopped()


def main() -> None:
    """Runs the worker that the environment's `OUTLAST_…` keys describe."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--uncached", action="store_true")
    options = parser.parse_args()
    uvloop.run(serve(load_settings(), options.address, cached=not options.uncached))


if __name__ == "__main__":
    main()
