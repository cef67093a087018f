"""`outlast erase` and `outlast payloads`: what is a person's goes, and what nobody refers to any more."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated
from uuid import UUID, uuid4

import typer

from cli.endpoints import find_endpoints, temporal_client, usable_database
from cli.options import DataDir, check_parties, configured, counted, help_alone, note, operator, say
from cli.running import attempt, leave
from settings import Settings
from workflows.contracts.errors import SetupError
from workflows.contracts.horizon import LONGEST_HOURS

if TYPE_CHECKING:
    from temporalio.client import Client

    from activities.db.erasures import Receipt
    from activities.db.pool import Database

payloads = typer.Typer(help="Look after payloads in external storage.")
payloads.callback(invoke_without_command=True)(help_alone)


LOOK_SECONDS = 0.5
LOOKS = 20
"""Looks at the receipt to one at the workflows behind it."""


def erase(
    principal: Annotated[str | None, typer.Option("--principal", help="Whose sessions.")] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="The principal's tenant.")] = "default",
    erasure: Annotated[
        UUID | None, typer.Option("--erasure", help="Instead of a principal: an erasure that was begun, to be followed to its end.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Don't ask.")] = False,
    data_dir: DataDir = None,
) -> None:
    """Delete all sessions of a person, wait until nothing is left of them, and print the receipt."""
    settings = configured(data_dir)
    if (principal is None) == (erasure is None):
        raise typer.BadParameter("say whose sessions with --principal, or which erasure with --erasure")
    if erasure is not None:
        leave(attempt(lambda: asyncio.run(run_again(settings, erasure))))
    leave(attempt(lambda: asyncio.run(run_erase(settings, tenant, principal or "", yes=yes))))


@payloads.command()
def collect(
    older_than: Annotated[
        float, typer.Option("--older-than", min=0.1, max=LONGEST_HOURS, help="Hours. Younger ones may be on their way into a history.")
    ] = 24.0,
    data_dir: DataDir = None,
) -> None:
    """Remove payloads from Postgres and S3 that no history in Temporal refers to (any more)."""
    settings = configured(data_dir)
    leave(attempt(lambda: asyncio.run(run_collect(settings, timedelta(hours=older_than)))))


async def run_erase(settings: Settings, tenant: str, principal: str, *, yes: bool) -> None:
    """Starts the erasure, or joins the one that runs, and follows it to its end. Raises OutlastError."""
    from activities.db.erasures import count_sessions
    from api.erasure_answers import Erasure

    check_parties(tenant=tenant, principal=principal)
    async with AsyncExitStack() as stack:
        database, client, queue = await _opened(stack, settings)
        owned = f"sessions of {principal!r} in tenant {tenant!r}: {await count_sessions(database, tenant, principal)}"
        if not yes:
            if not sys.stdin.isatty():
                raise SetupError(f"{owned}; nobody can be asked here whether to delete them: say --yes")
            if not _confirmed(f"{owned}. Delete them for good?"):
                note("nothing was deleted")
                return
        receipt = await _follow(database, await start_erasure(database, client, queue, tenant, principal))
    say(Erasure.of_receipt(receipt).model_dump_json(indent=2))


async def run_again(settings: Settings, erasure_id: UUID) -> None:
    """Follows an erasure to its end, and begins again what was ended of it. Raises OutlastError."""
    from activities.db.erasures import find_receipt
    from activities.unfinished import go_on
    from api.erasure_answers import Erasure

    async with AsyncExitStack() as stack:
        database, client, queue = await _opened(stack, settings)
        receipt = await find_receipt(database, erasure_id)
        if receipt is None:
            raise SetupError(f"there is no erasure {erasure_id}")
        if receipt.verified_at is None and not receipt.of_session and receipt.principal is not None:
            await start_erasure(database, client, queue, receipt.tenant, receipt.principal)
        receipt = await _follow(database, erasure_id, lambda: go_on(database, client, queue, erasure_id))
    say(Erasure.of_receipt(receipt).model_dump_json(indent=2))


def _confirmed(question: str) -> bool:
    try:
        return typer.confirm(question, err=True)
    except typer.Abort:
        raise KeyboardInterrupt from None


async def run_collect(settings: Settings, age: timedelta) -> None:
    """Removes what no history refers to, place by place and workflow by workflow. Raises OutlastError."""
    from activities.db.storage import Storage
    from activities.leftovers import Leftovers

    before = datetime.now(UTC) - age
    async with AsyncExitStack() as stack:
        database, client, _ = await _opened(stack, settings)
        storage = Storage(settings, database)
        stack.push_async_callback(storage.close)
        for store in storage.stores(client.namespace):
            removed, workflows = 0, await store.workflows(before)
            if workflows:
                await _check_temporal(database, client)
            for workflow_id in workflows:
                leftovers = Leftovers([store], client, workflow_id)
                removed += await leftovers.remove(await leftovers.older_than(before))
            say(f"{store.driver}: payloads of {counted(len(workflows), 'workflow')} looked at, {removed} removed")


async def _check_temporal(database: "Database", client: "Client") -> None:
    """Raises SetupError where Temporal knows none of the sessions that the rows know: it is another one, and all would seem left over."""
    from activities.db.erasures import any_session
    from cli.listing import listed
    from workflows.contracts.naming import SESSION_WORKFLOW

    if await any_session(database) and not await listed(client, f"WorkflowType = '{SESSION_WORKFLOW}'", limit=1):
        where = f"{client.service_client.config.target_host}, namespace {client.namespace}"
        raise SetupError(
            f"Temporal at {where} has no session's workflow, and the database has sessions: nothing was removed. Is it the right one?"
        )


async def _opened(stack: AsyncExitStack, settings: Settings) -> "tuple[Database, Client, str]":
    found = find_endpoints(settings)
    database = await stack.enter_async_context(usable_database(found))
    client = await stack.enter_async_context(temporal_client(found, database))
    return database, client, found.settings.task_queue


async def start_erasure(database: "Database", client: "Client", queue: str, tenant: str, principal: str) -> UUID:
    """The id of the erasure: of a new one, of the one that runs already, or of one whose workflow was ended, which goes on."""
    from temporalio.common import WorkflowIDConflictPolicy

    from activities.db.erasures import unfinished
    from workflows.contracts.naming import PRINCIPAL_ERASURE_WORKFLOW, principal_erasure_workflow_id
    from workflows.contracts.principal_erasures import ErasePrincipal

    erasure_id = str(await unfinished(database, tenant, principal) or uuid4())
    erasure = await client.start_workflow(
        PRINCIPAL_ERASURE_WORKFLOW,
        ErasePrincipal(erasure_id=erasure_id, tenant=tenant, principal=principal, by=operator()),
        id=principal_erasure_workflow_id(tenant, principal),
        task_queue=queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        memo={"erasure_id": erasure_id},
    )
    return UUID((await (await erasure.describe()).memo())["erasure_id"])


async def _follow(database: "Database", erasure_id: UUID, look: Callable[[], Awaitable[object]] | None = None) -> "Receipt":
    """Waits for an erasure's end and shows how far it is. `look` is done now and then."""
    from activities.db.erasures import count_sessions, find_receipt
    from cli.progress import bar

    note(f"erasure {erasure_id}: it goes on if you leave; `outlast erase` again shows it")
    with bar() as progress:
        task = progress.add_task("waiting for a worker", total=None)
        number = 0
        while True:
            if look is not None and number % LOOKS == 0:
                await look()
            number += 1
            if receipt := await find_receipt(database, erasure_id):
                if receipt.verified_at is not None:
                    return receipt
                left = 0 if receipt.of_session else await count_sessions(database, receipt.tenant, receipt.principal or "")
                progress.update(task, description="sessions", completed=receipt.parts_verified, total=receipt.parts + left)
            await asyncio.sleep(LOOK_SECONDS)
