"""The record of who did what. It outlives what it was done to."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal
from uuid import NAMESPACE_OID, UUID, uuid5

from activities.db.queries import load_queries
from workflows.contracts.json_text import json_text

Action = Literal["owner_change", "export", "erase", "expire", "key_create", "key_revoke"]

sql = load_queries()


@dataclass(frozen=True, slots=True)
class Act:
    """What a principal did at a time, to a session or to a `target`: the id of an API key, another principal.

    `facts` are ids and numbers, never content. The same act noted twice, as by an activity that is repeated, is one row.
    """

    action: Action
    tenant: str
    principal: str
    at: datetime
    session_uid: UUID | str | None = None
    target: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def id(self) -> UUID:
        """Derived from the act."""
        return uuid5(NAMESPACE_OID, f"{self.session_uid or self.tenant}/{self.target or ''}/{self.action}/{self.at.isoformat()}")


async def note(conn: Any, act: Act) -> None:
    """Writes one act, in the transaction that does it."""
    await sql.note_audit(
        conn,
        id=act.id,
        session_uid=act.session_uid,
        target=act.target,
        tenant=act.tenant,
        principal=act.principal,
        action=act.action,
        facts=json_text(act.facts),
        at=act.at,
    )


__all__ = ["Act", "Action", "note"]
