"""Acts on a session, for the record that outlives it."""

from typing import Any

from activities.db.audit import Act, Action, note
from activities.db.session_tx import moment
from workflows.model.session import SessionRef


async def note_act(conn: Any, session: SessionRef, action: Action, by: str, at: str, facts: dict[str, Any]) -> None:
    """Writes one act on a session at `at` (ISO 8601), in the transaction that does it. Facts are ids and numbers, never content."""
    await note(conn, Act(action, session.tenant, by, moment(at), session.session_uid, facts=facts))
