"""Inputs that change a session without a turn: cards, changes of its fields, its deletion."""

from temporalio import workflow

from workflows.contracts.carried import QueuedAmend, QueuedCard, QueuedClose
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import AmendInput, AmendReceipt, CardInput, CardReceipt, CloseInput, CloseReceipt
from workflows.model.state import Recent
from workflows.rules import admission
from workflows.rules.state import forget, named_digest, remember
from workflows.session_fields import SessionFields
from workflows.session_inputs import SessionInputs
from workflows.session_jobs import SessionJobs


class SessionAmends:
    """Judges them, puts them into the order, and answers when they are in the rows."""

    def __init__(self, jobs: SessionJobs, inputs: SessionInputs) -> None:
        self._jobs = jobs
        self._inputs = inputs
        self._posting: set[str] = set()
        self._fields = SessionFields(jobs)

    def check_card(self, card: CardInput) -> None:
        """Raises Refusal for a card that does not fit: not while a turn runs or the host is awaited (R172)."""
        head = self._jobs.state.head
        admission.check_card_shape(card)
        if self._jobs.claimed:
            admission.check_owner(head, card)
        if known := self._jobs.state.recent.get(card.id):
            admission.check_same_body(card.id, known.digest, named_digest(card))
            return
        admission.check_binding(head, card)
        admission.check_revision(self._jobs.revision, card)
        admission.check_idle(head, self._jobs.busy)

    def check_card_early(self, card: CardInput) -> None:
        """The same before history, where a turn that may be over already does not count."""
        if not self._jobs.ends_soon(card.rows):
            self.check_card(card)

    async def card(self, card: CardInput) -> CardReceipt:
        """Posts a card; the same id twice is the same card."""
        if self._jobs.ends_soon(card.rows):
            await self._inputs.quiet(card.rows)
        self.check_card(card)
        jobs = self._jobs
        if card.id in self._posting:
            await workflow.wait_condition(lambda: card.id not in self._posting)
            return await self.card(card)
        if card.id in jobs.state.recent:
            return CardReceipt(session_uid=jobs.state.head.session_uid, message_id=card.id, revision=jobs.state.head.revision)
        card = card.model_copy(update={"id": card.id or str(workflow.uuid4()), "digest": named_digest(card)})
        self._inputs.bear(card.principal, card.profile, card.subject)
        jobs.change(recent=remember(jobs.state.recent, card.id, Recent(digest=card.digest, turn_id="", message_id=card.id)))
        return await self._post(card)

    async def _post(self, card: CardInput) -> CardReceipt:
        """Answers when the card is in the rows. An id that came to nothing is free again."""
        jobs, ticket = self._jobs, str(workflow.uuid4())
        self._posting.add(card.id)
        jobs.enqueue(QueuedCard(ticket=ticket, card=card))
        try:
            answer = await jobs.answer_to(ticket)
        except BaseException:
            jobs.change(recent=forget(jobs.state.recent, card.id))
            raise
        finally:
            self._posting.discard(card.id)
        assert isinstance(answer, CardReceipt)
        return answer

    def check_amend(self, amend: AmendInput) -> None:
        """Raises Refusal for who may not, and for a move of the leaf while a turn runs."""
        admission.check_owner(self._jobs.state.head, amend)
        admission.check_revision(self._jobs.revision, amend)
        if "owner_id" in amend.fields and not amend.caller.is_admin:
            raise Refusal("forbidden", "only an admin can change the owner of a session")
        if "active_leaf_id" in amend.fields and self._jobs.busy:
            raise Refusal("busy", "a turn is running; cancel it or wait for its end")

    def check_amend_early(self, amend: AmendInput) -> None:
        """The same before history, where a turn that may be over already does not count."""
        if not self._jobs.ends_soon(amend.rows):
            self.check_amend(amend)

    async def amend(self, amend: AmendInput) -> AmendReceipt:
        """Changes title, owner or active leaf. Only the leaf has a place in the order; the others don't wait for a live turn."""
        particular = amend.expected_revision is not None or "active_leaf_id" in amend.fields
        if particular and self._jobs.ends_soon(amend.rows):
            await self._inputs.quiet(amend.rows)
        self.check_amend(amend)
        if "active_leaf_id" not in amend.fields and amend.rows and amend.rows.session_uid:
            return await self._fields.write(amend)
        ticket = str(workflow.uuid4())
        self._jobs.enqueue(QueuedAmend(ticket=ticket, amend=amend))
        answer = await self._jobs.answer_to(ticket)
        assert isinstance(answer, AmendReceipt)
        return answer

    def check_close(self, close: CloseInput) -> None:
        """Raises Refusal for who may not, expects another state, or means another session than the one that lives under the id now."""
        head = self._jobs.state.head
        admission.check_owner(head, close)
        if close.rows is not None and close.rows.session_uid not in (None, head.session_uid):
            raise Refusal("not_found", "the session is gone; another one lives under its id")
        admission.check_revision(self._jobs.revision, close)

    def check_close_early(self, close: CloseInput) -> None:
        """The same before history, where a turn that may be over already does not count."""
        if not self._jobs.ends_soon(close.rows):
            self.check_close(close)

    async def close(self, close: CloseInput) -> CloseReceipt:
        """Cancels what runs, drains what waits, and removes the session."""
        jobs = self._jobs
        if close.expected_revision is not None and jobs.ends_soon(close.rows):
            await self._inputs.quiet(close.rows)
        self.check_close(close)
        jobs.set_head(closing=True)
        jobs.interrupt(everything=True)
        ticket = str(workflow.uuid4())
        jobs.enqueue(QueuedClose(ticket=ticket, by=close.principal))
        answer = await jobs.answer_to(ticket)
        assert isinstance(answer, CloseReceipt)
        return answer
