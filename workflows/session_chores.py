"""What a session does between turns: repairs, cards, changes of its own fields, its end, and the word about refused signals."""

from typing import assert_never

from temporalio import workflow
from temporalio.workflow import ParentClosePolicy

from workflows.asking import erased, written
from workflows.contracts import telemetry
from workflows.contracts.carried import (
    Job,
    QueuedAmend,
    QueuedCard,
    QueuedClose,
    QueuedRefusal,
    QueuedReminder,
    QueuedRepair,
    QueuedTurn,
)
from workflows.contracts.erasures import EraseHistories, EraseRows, erase_rows
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import CardReceipt, CloseReceipt, RepairReceipt
from workflows.contracts.naming import ERASURE_WORKFLOW, erasure_workflow_id
from workflows.contracts.sessions import (
    PostCard,
    Remind,
    Written,
    post_card,
    remind,
)
from workflows.contracts.turns import RecordRefusal, RepairCalls, record_refusal, repair_calls
from workflows.rules.state import profile_of
from workflows.session_fields import SessionFields
from workflows.session_jobs import SessionJobs


class SessionChores:
    """Works off the queue, one job after the other."""

    def __init__(self, jobs: SessionJobs) -> None:
        self._jobs = jobs
        self._fields = SessionFields(jobs)

    async def take_next(self) -> None:
        """Does the first job of the queue. Whatever goes wrong in it, the session goes on (L12)."""
        job = self._jobs.next_job()
        with telemetry.work(job.job, job.trace, **_ids(job), session_uid=self._jobs.ref.session_uid):
            try:
                await self._do(job)
            except Exception:
                workflow.logger.exception("a job of the session failed unexpectedly")
                if ticket := getattr(job, "ticket", ""):
                    self._jobs.give(ticket, None)
            finally:
                self._jobs.under_way = None

    async def _do(self, job: Job) -> None:
        match job:
            case QueuedTurn():
                await self._jobs.run_turn(job)
            case QueuedRepair():
                await self._repair(job)
            case QueuedCard():
                await self._card(job)
            case QueuedAmend():
                await self._amend(job)
            case QueuedClose():
                await self._close(job)
            case QueuedReminder():
                await self._remind(job)
            case QueuedRefusal():
                await self._announce(job)
            case _:
                assert_never(job)

    async def _repair(self, job: QueuedRepair) -> None:
        jobs = self._jobs
        head = jobs.state.head
        repaired = await written(
            repair_calls, RepairCalls(session=jobs.ref, revision=head.revision + 1, at=workflow.now().isoformat()), "repair"
        )
        jobs.record(repaired.repaired_calls, "unknown")
        jobs.set_head(batch=None, revision=head.revision + (1 if repaired.changed else 0))
        jobs.give(job.ticket, RepairReceipt(cleared_pending=repaired.cleared_pending, repaired_calls=repaired.repaired_calls))
        jobs.show()

    async def _card(self, job: QueuedCard) -> None:
        jobs, card = self._jobs, job.card
        head = jobs.state.head
        made = await written(
            post_card,
            PostCard(
                session=jobs.ref,
                id=card.id,
                parent_id=head.leaf_id,
                segments=card.segments,
                content=card.content,
                digest=card.digest,
                profile=profile_of(head, card.profile),
                revision=head.revision + 1,
                at=workflow.now().isoformat(),
                birth=jobs.birth(),
            ),
            "host card",
        )
        if made.known:
            jobs.give(job.ticket, CardReceipt(session_uid=head.session_uid, message_id=card.id, revision=head.revision))
        elif self._written(job.ticket, made):
            jobs.set_head(leaf_id=card.id, hung_under=head.leaf_id, last_turn=None)
            jobs.give(job.ticket, CardReceipt(session_uid=head.session_uid, message_id=card.id, revision=head.revision + 1))

    async def _amend(self, job: QueuedAmend) -> None:
        try:
            self._jobs.give(job.ticket, await self._fields.write(job.amend))
        except Refusal as refusal:
            self._jobs.give(job.ticket, refusal)

    def _written(self, ticket: str, written: Written) -> bool:
        """Takes note of a write that raised the revision; False if the rows refused it."""
        jobs = self._jobs
        if written.refused:
            jobs.give(ticket, Refusal.named(written.refused, written.reason))
            return False
        jobs.set_head(revision=jobs.state.head.revision + 1)
        if written.expires_at:
            jobs.set_head(expires_at=written.expires_at)
        return True

    async def _close(self, job: QueuedClose) -> None:
        """Rows first: from the answer on nothing is readable. Histories go by a workflow of their own, which outlives this one."""
        jobs = self._jobs
        jobs.closed = True
        uid = jobs.state.head.session_uid
        await erased(erase_rows, EraseRows(session=jobs.ref, by=job.by, at=workflow.now().isoformat()), "erase")
        erasure_id = erasure_workflow_id(uid)
        info = workflow.info()
        await workflow.start_child_workflow(  # type: ignore[unused-awaitable]
            ERASURE_WORKFLOW,
            EraseHistories(
                workflow_id=info.workflow_id,
                session_uid=uid,
                run_ids=(info.run_id,),
                before=workflow.now().isoformat(),
            ),
            id=erasure_id,
            memo={"tenant": jobs.ref.tenant, "session_id": jobs.ref.session_id},
            parent_close_policy=ParentClosePolicy.ABANDON,
        )
        if job.ticket:
            jobs.give(job.ticket, CloseReceipt(session_uid=uid, erasure_id=erasure_id))

    async def _remind(self, job: QueuedReminder) -> None:
        await written(remind, Remind(session=self._jobs.ref, call_id=job.call_id, at=workflow.now().isoformat()), "reminder")

    async def _announce(self, job: QueuedRefusal) -> None:
        await written(record_refusal, RecordRefusal(session=self._jobs.ref, refusal=job.refusal), f"refused {job.refusal.what}")


def _ids(job: Job) -> dict[str, object]:
    """What a job's log lines and spans are about, beside its session."""
    match job:
        case QueuedTurn():
            return {"turn_id": job.turn.turn_id, "attempt": job.turn.attempt}
        case QueuedReminder():
            return {"call_id": job.call_id}
        case _:
            return {}
