"""Steps that a test runs itself, beside whatever the system's worker does: several runs of one step, late ones."""

from datetime import UTC, datetime

from tests.system import System
from workflows.contracts.steps import NewMessage, Opening, RunStep
from workflows.model.session import SessionRef
from workflows.model.turn import TurnRef


def late_step(session: SessionRef, leaf: str, attempt: int = 1) -> RunStep:
    """The first step of turn `late`, which writes to message `a2`."""
    turn = TurnRef(
        turn_id="late",
        number=2,
        attempt=attempt,
        message_id="a2",
        user_message_id="u2",
        parent_id="u2",
        accepted_at=datetime.now(UTC).isoformat(),
    )
    message = NewMessage(id="u2", parent_id=leaf, content="again", digest="d")
    opening = Opening(revision=3, message=message) if attempt == 1 else Opening(revision=4, retry=True)
    return RunStep(session=session, turn=turn, step=1, revision=4, profile="assistant", opening=opening)


async def session_of(system: System) -> tuple[SessionRef, str]:
    """A session that has had one turn, and its leaf."""
    turn = await system.chat("s1")
    uid = await system.conn.fetchval("select session_uid from sessions")
    return SessionRef(tenant=system.tenant, session_id="s1", session_uid=str(uid)), turn["message_id"]
