"""`outlast migrate`: the schema, and Temporal's search attributes."""

import asyncio

from activities.db.migrate import migrate, schema_status
from activities.search_attributes import register
from cli.endpoints import find_endpoints, temporal_client
from cli.serving import Say
from settings import Settings
from workflows.contracts.errors import OutlastError

TEMPORAL_SECONDS = 10.0


async def run_migrate(settings: Settings, say: Say, warn: Say, *, exact: bool = False) -> None:
    """Brings the schema to head and registers the search attributes. Raises SetupError; a Temporal that isn't there is a warning."""
    from temporalio.service import RPCError

    found = find_endpoints(settings)
    before = await schema_status(found.settings.database)
    await migrate(found.settings.database, exact=exact)
    after = await schema_status(found.settings.database)
    say(f"schema: {before.current or 'none'} -> {after.current} (this release needs {after.head})")
    if role := found.settings.database.runtime_role:
        say(f"role {role}: holds what this release needs{', and no more' if exact else ''}")
    try:
        async with asyncio.timeout(TEMPORAL_SECONDS), temporal_client(found) as client:
            added = await register(client)
    except (OutlastError, RPCError, TimeoutError) as error:
        warn(f"search attributes not registered, run this again when Temporal is there: {error or 'it does not answer'}")
    else:
        say(f"search attributes: {'registered ' + ', '.join(added) if added else 'all there'}")
