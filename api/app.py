"""The HTTP application: routes, errors, and the parts that live as long as it does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from activities.db.api_keys import ApiKeys
from activities.db.bucket import check_client
from activities.db.changes import Changes
from activities.db.client import connect
from activities.db.encryption import codec_of
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
from api import errors, openapi
from api.deps import Api
from api.ending import Ending
from api.gate import Gate, cors
from api.identity import Access
from api.measures import Measured, Measures
from api.observing import client_interceptors, observe
from api.routes import (
    changes,
    chat,
    codec,
    erasures,
    events,
    exports,
    health,
    host_actions,
    messages,
    metrics,
    prometheus,
    search,
    sessions,
    transcripts,
)
from api.sending import Workflows
from api.signing import KeyRing
from api.tails import Tails
from profiles.loading import load_profiles
from settings import Settings

ROUTES = (
    chat,
    sessions,
    messages,
    transcripts,
    exports,
    search,
    metrics,
    changes,
    events,
    host_actions,
    erasures,
    health,
    prometheus,
    codec,
)


def create_app(settings: Settings, *, durable: bool = True, temporal_address: str | None = None) -> FastAPI:
    """The app. Neither Postgres nor Temporal need be there when it starts: what needs them answers 503 until they are.

    `durable` False: state is lost when the process ends, and every answer says so. `temporal_address` overrides Temporal's own
    configuration. Raises SetupError for a profile or a payload key that can't be loaded, where there is no signing key (S60), and where the
    client for a bucket is not installed.
    """
    app = FastAPI(
        title="Outlast",
        version=version("outlast"),
        description="Assistant conversations that outlive processes.",
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
    )
    app.state.settings = settings
    app.state.profiles = load_profiles(settings)
    app.state.keyring = KeyRing.of(settings.signing.keys)
    app.state.codec = codec_of(settings.codec.keys)
    check_client(settings.payloads)
    app.state.durable = durable
    app.state.temporal_address = temporal_address
    for routes in ROUTES:
        app.include_router(routes.router)
    errors.install(app)
    openapi.add_pages(app)
    app.openapi = lambda: openapi.describe(app)  # type: ignore[method-assign]
    app.state.measures = Measures()
    app.add_middleware(Ending)
    app.add_middleware(Measured, measures=app.state.measures)
    app.add_middleware(Gate, settings=settings, durable=durable)
    observe(app, traced=settings.tracing.enabled)
    if settings.access.origins:
        # Outermost: a browser's preflight names nobody, so it is answered before anyone asks who calls.
        app.add_middleware(CORSMiddleware, **cors(settings.access))
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    settings: Settings = app.state.settings
    database = await Database.open(settings.database)
    log, feed = EventLog(database), await Feed.open(settings.database)
    storage, observers = Storage(settings, database), client_interceptors(traced=settings.tracing.enabled)
    temporal = await connect(settings, storage, app.state.temporal_address, for_api=True, interceptors=observers)
    access = Access(settings.access, ApiKeys(database))
    shown = {"expires": settings.session_ttl_hours > 0, "held": settings.session_hold_while_pending}
    app.state.api = Api(
        settings=settings,
        profiles=app.state.profiles,
        durable=app.state.durable,
        access=access,
        database=database,
        reads=Reads(database, **shown),
        search=Search(database, **shown),
        messages=Messages(database),
        transcripts=Transcripts(database),
        exports=Exports(database),
        metrics=Metrics(database),
        changes=Changes(database),
        keys=Keys(database),
        pauses=Pauses(database, **shown),
        log=log,
        feed=feed,
        tails=Tails(log, feed, settings),
        storage=storage,
        temporal=temporal,
        workflows=Workflows(temporal, settings.task_queue),
        keyring=app.state.keyring,
        codec=app.state.codec,
        stopping=asyncio.Event(),
    )
    try:
        yield
    finally:
        await access.close()
        await feed.close()
        await storage.close()
        await database.close()
