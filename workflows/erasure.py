"""Removes what is left of a deleted session: the closed runs of its workflow and their payloads."""

from temporalio import workflow

from workflows.asking import erased
from workflows.contracts import policies
from workflows.contracts.erasures import (
    DeleteRuns,
    Erased,
    EraseHistories,
    ErasePayloads,
    VerifyErasure,
    delete_runs,
    erase_payloads,
    find_runs,
    verify_erasure,
)
from workflows.contracts.naming import ERASURE_WORKFLOW


@workflow.defn(name=ERASURE_WORKFLOW)
class ErasureWorkflow:
    """Goes on until nothing is left, across every crash. Temporal deletes in the background: on a dev server that takes tens of seconds."""

    @workflow.run
    async def run(self, erase: EraseHistories) -> Erased:
        """What was removed, the rows included, once it is verified."""
        runs: set[str] = set()
        while True:
            found = await erased(find_runs, erase, f"runs of {erase.workflow_id}")
            if found.run_ids:
                runs.update(found.run_ids)
                await erased(erase_payloads, ErasePayloads(erase=erase, run_ids=found.run_ids), "payloads that they refer to")
                delete = DeleteRuns(workflow_id=erase.workflow_id, run_ids=found.run_ids)
                await erased(delete_runs, delete, f"{len(found.run_ids)} of them")
            await erased(erase_payloads, ErasePayloads(erase=erase), "payloads that are left over")
            verified = await erased(verify_erasure, VerifyErasure(erase=erase, workflow_runs=len(runs)), "is anything left")
            if verified.verified:
                return verified
            await workflow.sleep(policies.ERASE_AGAIN)
