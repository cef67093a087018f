"""The commands, as typer sees them."""

import asyncio
from typing import Annotated

import typer

from cli.options import DataDir, configured
from cli.running import attempt, leave

Sessions = Annotated[list[str] | None, typer.Argument(help="Ids of sessions.", show_default=False)]
Tenant = Annotated[
    str | None, typer.Option("--tenant", help="The sessions' tenant. Alone: all of its sessions. Default of named sessions: default.")
]
Query = Annotated[str | None, typer.Option("--query", help="Temporal list filter: the sessions of the workflows that it finds.")]
All = Annotated[bool, typer.Option("--all", help="Every session of every tenant.")]


def verify(sessions: Sessions = None, tenant: Tenant = None, query: Query = None, all: All = False, data_dir: DataDir = None) -> None:
    """Hold sessions' rows against what their histories say; exit 1 if something differs. Changes nothing."""
    _run(sessions or [], tenant, query, all, data_dir, rebuild=False)


def rebuild(sessions: Sessions = None, tenant: Tenant = None, query: Query = None, all: All = False, data_dir: DataDir = None) -> None:
    """Derive sessions' rows from their retained histories where they differ; exit 1 if something still does."""
    _run(sessions or [], tenant, query, all, data_dir, rebuild=True)


def _run(sessions: list[str], tenant: str | None, query: str | None, all: bool, data_dir: DataDir, *, rebuild: bool) -> None:
    from cli.rebuild.run import Picked, run

    settings = configured(data_dir)
    leave(attempt(lambda: asyncio.run(run(settings, Picked(sessions, tenant, query, all), rebuild=rebuild))))
