"""The erasure of all that is a person's, as activities."""

import asyncio
from datetime import UTC, datetime

from temporalio import activity
from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError

from activities.beating import beating
from activities.db.audit import Act, note
from activities.db.client import forget_failure, session_start
from activities.db.session_tx import moment, sql
from activities.erasures import still_there
from activities.kit import Kit
from activities.unfinished import go_on
from workflows.contracts.errors import REFUSAL, Refusal
from workflows.contracts.inputs import CloseInput, CloseReceipt, RowsSaid
from workflows.contracts.principal_erasures import ErasePrincipal, EraseSessions, FoundSessions, PrincipalErased
from workflows.model.session import SessionRef

PAGE = 50
"""Sessions that are deleted between two entries in the erasure's own history."""

AT_ONCE = 8
"""Of them, how many side by side: those of one person are not to take a worker from everybody else."""


class PrincipalErasures:
    """Finds a person's sessions, has them deleted, and looks whether any is left."""

    def __init__(self, kit: Kit, client: Client) -> None:
        self._kit = kit
        self._client = client

    @activity.defn
    async def begin_principal_erasure(self, erase: ErasePrincipal) -> None:
        """Who asked, when; and idempotency keys, which belong to a principal and not to a session."""
        async with beating(), self._kit.db.transaction() as conn:
            at = moment(erase.at)
            await sql.begin_principal_erasure(conn, id=erase.erasure_id, tenant=erase.tenant, principal=erase.principal, begun_at=at)
            await note(conn, Act("erase", erase.tenant, erase.by, at, target=erase.principal, facts={"erasure_id": erase.erasure_id}))

    @activity.defn
    async def find_sessions(self, erase: ErasePrincipal) -> FoundSessions:
        """Those that the principal owns now, a page of them."""
        async with beating(), self._kit.db.connection() as conn:
            rows = sql.sessions_to_erase(conn, tenant=erase.tenant, principal=erase.principal, before=moment(erase.at), page=PAGE)
            sessions = [
                SessionRef(tenant=erase.tenant, session_id=row["session_id"], session_uid=str(row["session_uid"])) async for row in rows
            ]
        return FoundSessions(sessions=tuple(sessions))

    @activity.defn
    async def erase_sessions(self, erase: EraseSessions) -> None:
        """Deletes each; then they are parts of the erasure, also those that an attempt before this one deleted, or somebody else did."""
        async with beating():
            few = asyncio.Semaphore(AT_ONCE)

            async def one(session: SessionRef) -> None:
                async with few:
                    await self._close(session, erase.by)

            outcomes = await asyncio.gather(*(one(session) for session in erase.sessions), return_exceptions=True)
            async with self._kit.db.connection() as conn:
                await sql.join_erasures(conn, part_of=erase.erasure_id, ids=[session.session_uid for session in erase.sessions])
            if failed := [outcome for outcome in outcomes if isinstance(outcome, BaseException)]:
                raise failed[0]

    @activity.defn
    async def verify_principal_erasure(self, erase: ErasePrincipal) -> PrincipalErased:
        """Waits for the parts, then looks for sessions that began before and whose rows came late. A part that nobody does is begun again."""
        async with beating():
            if parts := await go_on(self._kit.db, self._client, self._kit.settings.task_queue, erase.erasure_id):
                raise still_there(f"{parts} sessions are still being removed")
            async with self._kit.db.connection() as conn:
                before, now = moment(erase.at), datetime.now(UTC)
                rows = sql.sessions_to_erase(conn, tenant=erase.tenant, principal=erase.principal, before=before, page=1)
                if [row async for row in rows]:
                    return PrincipalErased()
                await sql.verify_erasure(conn, id=erase.erasure_id, workflow_runs=0, at=now)
        return PrincipalErased(verified=True)

    async def _close(self, session: SessionRef, by: str) -> None:
        """What `DELETE` does. The uid says which session is meant: its id may be another one's by now."""
        start = session_start(session.tenant, session.session_id, self._kit.settings.task_queue)
        close = CloseInput(tenant=session.tenant, principal=by, roles=("admin",), rows=RowsSaid(session_uid=session.session_uid))
        try:
            await self._client.execute_update_with_start_workflow("close", close, result_type=CloseReceipt, start_workflow_operation=start)
        except WorkflowUpdateFailedError as error:
            await forget_failure(start)
            cause = error.cause
            if not (isinstance(cause, ApplicationError) and cause.type == REFUSAL and Refusal.from_failure(cause).code == "not_found"):
                raise
