"""A session's own fields: title, owner, active leaf."""

from temporalio import workflow

from workflows.asking import written
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import AmendInput, AmendReceipt
from workflows.contracts.sessions import AmendSession, amend_session
from workflows.session_jobs import SessionJobs


class SessionFields:
    """Writes them, and takes note of it."""

    def __init__(self, jobs: SessionJobs) -> None:
        self._jobs = jobs

    async def write(self, amend: AmendInput) -> AmendReceipt:
        """The change, in the rows. Raises the Refusal that the rows came to.

        Only a move of the leaf raises the revision, and supersedes what was pending; it is not made beside a turn.
        """
        jobs, batch = self._jobs, self._jobs.state.head.batch
        moves = "active_leaf_id" in amend.fields
        made = await written(
            amend_session,
            AmendSession(
                session=jobs.ref,
                fields=amend.fields,
                title=amend.title,
                owner_id=amend.owner_id,
                active_leaf_id=amend.active_leaf_id,
                revision=jobs.state.head.revision + (1 if moves else 0),
                at=workflow.now().isoformat(),
                by=amend.principal,
            ),
            "change of " + ", ".join(amend.fields),
        )
        if made.refused:
            raise Refusal.named(made.refused, made.reason)
        if moves:
            jobs.record([*made.superseded, *(call.call_id for call in (batch.open if batch else ()))], "superseded")
            jobs.set_head(leaf_id=amend.active_leaf_id, batch=None, last_turn=None, revision=jobs.state.head.revision + 1)
        if "owner_id" in amend.fields:
            jobs.set_head(owner=amend.owner_id)
        jobs.show()
        return AmendReceipt(session_uid=jobs.state.head.session_uid, revision=jobs.state.head.revision)
