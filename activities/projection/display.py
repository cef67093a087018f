"""The event that carries a message as readers see it."""

from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic_core import to_jsonable_python

from activities.db.messages import display_row
from activities.db.session_tx import SessionTx


async def announce_message(tx: SessionTx, message_id: str, turn_id: str | None, at: datetime) -> None:
    """`message.recorded` with the row as this transaction leaves it."""
    row: dict[str, Any] | None = await display_row(tx.conn, UUID(tx.uid), message_id)
    await tx.announce("message.recorded", turn_id, at, {"message": to_jsonable_python(row)})
