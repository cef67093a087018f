"""Writes on a session that are no turns, and its end, as activities."""

from temporalio import activity
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from activities.beating import beating
from activities.db.session_tx import SessionGone, moment, sql
from activities.kit import Kit
from activities.patience import patiently
from activities.projection.audit import note_act
from activities.projection.calls import supersede_open_calls
from activities.projection.cards import post
from activities.projection.ending import pending_action, pending_calls
from activities.running import guarded
from workflows.contracts.errors import Refusal
from workflows.contracts.json_text import json_text
from workflows.contracts.sessions import AmendSession, Erased, EraseHistories, EraseRows, PostCard, Remind, Written


class Sessions:
    """Cards, changes of a session's fields, reminders, erasure."""

    def __init__(self, kit: Kit, client: Client) -> None:
        self._kit = kit
        self._client = client

    @activity.defn
    async def post_card(self, card: PostCard) -> Written:
        """Writes a card's row (R169)."""
        async with beating():
            return await guarded(patiently(lambda: self._post_card(card)))

    async def _post_card(self, card: PostCard) -> Written:
        try:
            async with self._kit.session(card.session, birth=card.birth) as tx:
                posted = await post(tx, card)
                return Written(expires_at=tx.slide(moment(card.at)), known=not posted)
        except Refusal as refusal:
            return Written(refused=refusal.code, reason=refusal.message)

    @activity.defn
    async def amend_session(self, change: AmendSession) -> Written:
        """Writes new values of a session's fields."""
        async with beating():
            return await guarded(patiently(lambda: self._amend_session(change)))

    async def _amend_session(self, change: AmendSession) -> Written:
        at = moment(change.at)
        try:
            async with self._kit.session(change.session) as tx:
                superseded: list[str] = []
                if "active_leaf_id" in change.fields:
                    if await sql.message_place(tx.conn, session_uid=tx.uid, message_id=change.active_leaf_id) is None:
                        return Written(refused="not_found", reason=f"there is no message {change.active_leaf_id!r} in this session")
                    superseded = await supersede_open_calls(tx, at)
                    tx.change(at, active_leaf_id=change.active_leaf_id, revision=change.revision)
                if "title" in change.fields:
                    tx.change(at, title=change.title)
                if "owner_id" in change.fields:
                    await note_act(
                        tx.conn, change.session, "owner_change", change.by, change.at, {"before": tx.owner, "after": change.owner_id}
                    )
                    tx.change(at, owner=change.owner_id)
        except SessionGone:
            return Written(refused="not_found", reason="there is no such session")
        return Written(superseded=tuple(superseded))

    @activity.defn
    async def remind(self, reminder: Remind) -> None:
        """Announces that the host is still waited for."""
        async with beating():
            await guarded(patiently(lambda: self._remind(reminder)))

    async def _remind(self, reminder: Remind) -> None:
        try:
            async with self._kit.session(reminder.session) as tx:
                batch, waiting = await pending_calls(tx)
                if batch and any(row["call_id"] == reminder.call_id for row in waiting):
                    shown = {"pending_action": pending_action(batch, waiting)}
                    await tx.announce("host_action.reminder", None, moment(reminder.at), shown)
        except SessionGone:
            activity.logger.info("no reminder: the session is gone")

    @activity.defn
    async def erase_rows(self, erase: EraseRows) -> Erased:
        """Removes a session's rows; readers of its events are woken and find it gone."""
        async with beating():
            return await guarded(patiently(lambda: self._erase_rows(erase)))

    async def _erase_rows(self, erase: EraseRows) -> Erased:
        uid = erase.session.session_uid
        async with self._kit.db.transaction() as conn:
            rows = {row["name"]: row["rows"] async for row in sql.count_session_rows(conn, session_uid=uid)}
            if any(rows.values()):
                await note_act(conn, erase.session, "erase" if erase.by else "expire", erase.by, erase.at, {"rows": rows})
            await sql.delete_session(conn, session_uid=uid, note=json_text({"s": uid, "e": 0}))
        return Erased(rows=rows)

    @activity.defn
    async def erase_histories(self, erase: EraseHistories) -> Erased:
        """Removes closed runs and their payloads, and looks again."""
        async with beating():
            return await guarded(self._erase_histories(erase))

    async def _erase_histories(self, erase: EraseHistories) -> Erased:
        if open_runs := [run_id for run_id in erase.run_ids if await self._is_there(erase.workflow_id, run_id, open_only=True)]:
            raise ApplicationError(f"the session's workflow has not ended yet ({len(open_runs)} run)", type="StillThere")
        runs = await self._runs(erase)
        for run_id in runs:
            await self._delete(erase.workflow_id, run_id)
        if left := [run_id for run_id in runs if await self._is_there(erase.workflow_id, run_id)]:
            raise ApplicationError(f"Temporal still removes {len(left)} of {len(runs)} runs", type="StillThere")
        payloads = await patiently(lambda: self._delete_payloads(erase))
        return Erased(workflow_runs=len(runs), payloads=payloads)

    async def _runs(self, erase: EraseHistories) -> list[str]:
        """The session's runs: those that carried its uid. Its workflow id may be in use by another session already."""
        found = list(erase.run_ids)
        async for run in self._client.list_workflows(f"WorkflowId = '{erase.workflow_id}' and CloseTime is not null"):
            if run.run_id not in found and (await run.memo()).get("session_uid", erase.session_uid) == erase.session_uid:
                found.append(run.run_id)
        return found

    async def _delete(self, workflow_id: str, run_id: str) -> None:
        execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
        request = DeleteWorkflowExecutionRequest(namespace=self._client.namespace, workflow_execution=execution)
        try:
            await self._client.workflow_service.delete_workflow_execution(request)
        except RPCError as error:
            if error.status != RPCStatusCode.NOT_FOUND:
                raise

    async def _is_there(self, workflow_id: str, run_id: str, *, open_only: bool = False) -> bool:
        try:
            run = await self._client.get_workflow_handle(workflow_id, run_id=run_id).describe()
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return run.status == WorkflowExecutionStatus.RUNNING if open_only else True

    async def _delete_payloads(self, erase: EraseHistories) -> int:
        async with self._kit.db.connection() as conn:
            before = moment(erase.before)
            return len([row async for row in sql.delete_payloads_before(conn, workflow_id=erase.workflow_id, before=before)])
