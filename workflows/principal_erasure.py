"""Removes all that is a person's, page by page: thousands of sessions make its history no longer than a few do."""

from temporalio import workflow

from workflows.asking import erased
from workflows.contracts import policies
from workflows.contracts.naming import PRINCIPAL_ERASURE_WORKFLOW
from workflows.contracts.principal_erasures import (
    ErasePrincipal,
    EraseSessions,
    begin_principal_erasure,
    erase_sessions,
    find_sessions,
    verify_principal_erasure,
)


@workflow.defn(name=PRINCIPAL_ERASURE_WORKFLOW)
class PrincipalErasureWorkflow:
    """Takes the sessions that began before it did. Those that begin later stay, so that it comes to an end however busy the person is."""

    @workflow.run
    async def run(self, erase: ErasePrincipal) -> str:
        """The erasure's id, once nothing is left."""
        if not erase.at:
            erase = erase.model_copy(update={"at": workflow.now().isoformat()})
            await erased(begin_principal_erasure, erase, "what is theirs beside sessions")
        while True:
            await self._take_sessions(erase)
            if (await erased(verify_principal_erasure, erase, "is anything left")).verified:
                return erase.erasure_id
            await workflow.sleep(policies.ERASE_AGAIN)

    async def _take_sessions(self, erase: ErasePrincipal) -> None:
        """Until a look finds none."""
        while page := (await erased(find_sessions, erase, "sessions that are left")).sessions:
            part = EraseSessions(erasure_id=erase.erasure_id, by=erase.by, sessions=page)
            await erased(erase_sessions, part, f"{len(page)} sessions")
            info = workflow.info()
            if info.is_continue_as_new_suggested() or info.get_current_history_length() >= policies.ROLL_EVENTS:
                workflow.continue_as_new(erase, initial_versioning_behavior=policies.NEXT_RUN)
