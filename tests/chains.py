"""The runs of a workflow that continues as new, and what one has taken."""

from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowHistory


async def chain_of(client: Client, workflow_id: str) -> list[WorkflowHistory]:
    """The histories of the newest run and of all that it continues, oldest first. Payloads are as the server has them."""
    history = await client.get_workflow_handle(workflow_id).fetch_history()
    found = [history]
    while before := history.events[0].workflow_execution_started_event_attributes.continued_execution_run_id:
        history = await client.get_workflow_handle(workflow_id, run_id=before).fetch_history()
        found.insert(0, history)
    return found


async def inputs_taken(handle: "WorkflowHandle[Any, Any]") -> int:
    """How many updates a run has accepted, by its history."""
    events = (await handle.fetch_history()).events
    return sum(event.HasField("workflow_execution_update_accepted_event_attributes") for event in events)
