"""What endpoints share: one of everything per process, made when the app starts."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from temporalio.client import Client

from activities.db.changes import Changes
from activities.db.encryption import AesGcmCodec
from activities.db.events import EventLog
from activities.db.exports import Exports
from activities.db.feed import Feed
from activities.db.keys import Keys
from activities.db.messages import Messages
from activities.db.metrics import Metrics
from activities.db.pauses import Pauses
from activities.db.pool import Database
from activities.db.reads import Reads
from activities.db.search import Search
from activities.db.storage import Storage
from activities.db.transcripts import Transcripts
from api.identity import Access
from api.sending import Workflows
from api.signing import KeyRing
from api.tails import Tails
from profiles.loading import Profiles
from settings import Settings


@dataclass(frozen=True, slots=True)
class Api:
    """The parts of a running api. `stopping` is set once the process is about to end."""

    settings: Settings
    profiles: Profiles
    durable: bool
    access: Access
    database: Database
    reads: Reads
    messages: Messages
    transcripts: Transcripts
    exports: Exports
    search: Search
    metrics: Metrics
    changes: Changes
    keys: Keys
    pauses: Pauses
    log: EventLog
    feed: Feed
    tails: Tails
    storage: Storage
    temporal: Client
    workflows: Workflows
    keyring: KeyRing
    codec: AesGcmCodec | None
    stopping: asyncio.Event

    def stop(self) -> None:
        """Ends streams and waiting requests."""
        self.stopping.set()
        self.feed.wake()
        self.tails.wake()


async def get_api(request: Request) -> Api:
    """The parts of the app that serves `request`."""
    api: Api = request.app.state.api
    return api


ApiDep = Annotated[Api, Depends(get_api)]
