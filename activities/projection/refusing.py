"""An accepted input that the rows refuse: the workflow could not know, so readers are told."""

from activities.db.pool import Database
from activities.db.session_tx import moment, now_text, session_tx
from activities.patience import patiently
from workflows.contracts.errors import Refusal
from workflows.model.session import SessionRef
from workflows.model.turn import TurnRef


async def announce_refused(db: Database, session: SessionRef, turn: TurnRef, refusal: Refusal) -> None:
    """`input.refused`, for who waits for the turn; nothing else was written. Raises SessionGone."""
    data = {"what": turn.kind, "code": refusal.code, "message": refusal.message, "refused_turn_id": turn.turn_id}

    async def announce() -> None:
        async with session_tx(db, session) as tx:
            await tx.announce("input.refused", None, moment(now_text()), data)

    await patiently(announce)
