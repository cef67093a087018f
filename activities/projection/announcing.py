"""Words to a session's readers that no row stands for: an accepted input that the rows refuse, a refused signal, a reminder."""

from contextlib import suppress
from datetime import datetime
from typing import Any

from activities.db.pool import Database
from activities.db.session_tx import SessionGone, SessionTx, moment, now_text, session_tx, sql
from activities.patience import patiently
from workflows.contracts.errors import Refusal
from workflows.contracts.json_text import json_text
from workflows.model.session import SessionRef
from workflows.model.turn import TurnRef


async def announce_once(tx: SessionTx, type: str, at: datetime, data: dict[str, Any], *, whenever: bool = False) -> None:
    """Adds the event unless an attempt whose answer was lost has said the same at the same time, or `whenever` it was."""
    said = await sql.said_lately(tx.conn, session_uid=tx.uid, type=type, data=json_text(data), at=None if whenever else at)
    if not said:
        await tx.announce(type, None, at, data)


async def announce_refused(db: Database, session: SessionRef, turn: TurnRef, refusal: Refusal) -> None:
    """`input.refused`, for who waits for the turn; nothing else was written. A first input makes no row where it is refused, and nobody
    can wait for its turn then.
    """
    data = {"what": turn.kind, "code": refusal.code, "message": refusal.message, "refused_turn_id": turn.turn_id}

    async def announce() -> None:
        async with session_tx(db, session) as tx:
            await announce_once(tx, "input.refused", moment(now_text()), data, whenever=True)

    with suppress(SessionGone):
        await patiently(announce)
