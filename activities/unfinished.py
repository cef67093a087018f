"""Erasures of sessions whose workflow somebody ended, or whose session's workflow was ended before it began one: they go on from their row."""

from uuid import UUID

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy

from activities.db.pool import Database
from activities.db.session_tx import sql
from activities.runs import Runs
from workflows.contracts.erasures import EraseHistories
from workflows.contracts.naming import ERASURE_WORKFLOW, erasure_workflow_id, session_workflow_id

FEW = 20
"""So many are looked after at a time, the oldest first: of thousands that run, none needs it."""


async def go_on(database: Database, client: Client, task_queue: str, erasure_id: UUID | str) -> int:
    """Begins again what does not run of an erasure or its parts, and answers how many parts are not verified.

    One that runs is left alone, and so is one whose session is about to begin it. Raises RPCError where Temporal does not answer.
    """
    async with database.connection() as conn:
        rows = [row async for row in sql.unverified_sessions(conn, id=erasure_id, count=FEW)]
    for row in rows:
        session_uid, workflow_id = str(row["id"]), session_workflow_id(row["tenant"], row["session_id"])
        if await Runs(client, erasure_workflow_id(session_uid)).goes_on() or await Runs(client, workflow_id).goes_on(session_uid):
            continue
        before = row["begun_at"].isoformat()
        await client.start_workflow(
            ERASURE_WORKFLOW,
            EraseHistories(workflow_id=workflow_id, session_uid=session_uid, run_ids=(), before=before),
            id=erasure_workflow_id(session_uid),
            task_queue=task_queue,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            memo={"tenant": row["tenant"], "session_id": row["session_id"]},
        )
    return rows[0]["parts"] if rows else 0
