"""Runs that a Temporal list filter finds."""

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from workflows.contracts.errors import ServiceUnavailable, SetupError


async def listed(client: Client, query: str, limit: int | None = None, *, typed: str | None = None) -> list[WorkflowExecution]:
    """At most `limit` runs, newest first. `typed`: the part of the filter that was given as `--query`.

    Raises SetupError for a filter that the server can't read, ServiceUnavailable where Temporal is not there.
    """
    try:
        return [run async for run in client.list_workflows(query, limit=limit)]
    except RPCError as error:
        if error.status.name == "INVALID_ARGUMENT":
            if typed is not None:
                raise SetupError(f"--query {typed}: {error.message}") from error
            lacking = f"`outlast doctor` says what this Temporal lacks; it was asked for {query}"
            raise SetupError(f"Temporal refuses a list filter: {error.message} ({lacking})") from error
        raise ServiceUnavailable("temporal", error.message) from error
