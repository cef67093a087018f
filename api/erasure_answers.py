"""The receipt of an erasure as an answer."""

from datetime import datetime
from typing import Literal, Self

from activities.db.erasures import Receipt
from api.answers import Answer

NOT_COVERED = "what model providers, hosts and their logs keep; the usage ledger and the audit, which hold ids and numbers"


class Erasure(Answer):
    """What an erasure removed, once it has looked again: rows by table, runs of the sessions' workflows, payloads.

    Until then, what is gone so far. `not_covered` says in words what nobody here can remove.
    """

    erasure_id: str
    status: Literal["running", "done"]
    session_ids: list[str]
    rows: dict[str, int]
    workflow_runs: int
    payloads: int
    verified: bool
    at: datetime | None
    not_covered: str

    @classmethod
    def of_receipt(cls, receipt: Receipt) -> Self:
        """The answer for a receipt."""
        return cls(
            erasure_id=str(receipt.erasure_id),
            status="running" if receipt.verified_at is None else "done",
            session_ids=list(receipt.session_ids),
            rows=receipt.rows,
            workflow_runs=receipt.workflow_runs,
            payloads=receipt.payloads,
            verified=receipt.verified_at is not None,
            at=receipt.verified_at,
            not_covered=NOT_COVERED,
        )
