"""Outlast's api as it is, on the port that its settings name."""

import asyncio
import sys

from api.app import create_app
from api.server import ApiServer
from settings import Settings, load_settings


async def serve(settings: Settings, address: str) -> None:
    """Serves until the process is ended."""
    app = create_app(settings, temporal_address=address)
    await ApiServer(app, host=settings.api.host, port=settings.api.port).run()


if __name__ == "__main__":
    asyncio.run(serve(load_settings(), sys.argv[1]))
