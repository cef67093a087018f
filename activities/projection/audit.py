"""The record of who did what, which outlives the session that it was done to."""

from typing import Any, Literal
from uuid import NAMESPACE_OID, uuid5

from activities.db.session_tx import moment, sql
from workflows.contracts.json_text import json_text
from workflows.model.session import SessionRef


async def note(
    conn: Any, session: SessionRef, action: Literal["owner_change", "erase", "expire"], by: str, at: str, facts: dict[str, Any]
) -> None:
    """Writes one act, in the transaction that does it. Facts are ids and numbers, never content."""
    await sql.note_audit(
        conn,
        id=uuid5(NAMESPACE_OID, f"{session.session_uid}/{action}/{at}"),
        session_uid=session.session_uid,
        tenant=session.tenant,
        principal=by,
        action=action,
        facts=json_text(facts),
        at=moment(at),
    )
