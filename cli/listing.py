"""Runs that a Temporal list filter finds."""

from temporalio.client import Client, WorkflowExecution
from temporalio.service import RPCError

from workflows.contracts.errors import ServiceUnavailable, SetupError


async def listed(client: Client, query: str, limit: int | None = None) -> list[WorkflowExecution]:
    """At most `limit` runs, newest first. Raises SetupError for a filter that can't be read, ServiceUnavailable where Temporal is not there."""
    try:
        return [run async for run in client.list_workflows(query, limit=limit)]
    except RPCError as error:
        if error.status.name == "INVALID_ARGUMENT":
            raise SetupError(f"--query: {error.message}") from error
        raise ServiceUnavailable("temporal", error.message) from error
