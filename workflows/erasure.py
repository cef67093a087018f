"""Removes what is left of a deleted session: the closed runs of its workflow and their payloads."""

from temporalio import workflow

from workflows.contracts import policies
from workflows.contracts.naming import ERASURE_WORKFLOW
from workflows.contracts.sessions import Erased, EraseHistories, erase_histories


@workflow.defn(name=ERASURE_WORKFLOW)
class ErasureWorkflow:
    """Goes on until nothing is left, across every crash. Temporal deletes in the background: on a dev server that takes tens of seconds."""

    @workflow.run
    async def run(self, erase: EraseHistories) -> Erased:
        """What was removed, the rows included, once it is verified."""
        erased = await workflow.execute_activity(
            erase_histories, erase, start_to_close_timeout=policies.ERASURE, retry_policy=policies.UNTIL_GONE, summary=erase.workflow_id
        )
        return erased.model_copy(update={"rows": erase.rows})
