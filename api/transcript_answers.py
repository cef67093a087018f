"""Answers that show transcripts."""

from datetime import datetime

from activities.db.transcripts import Role, TranscriptRow
from api.answers import Answer


class TranscriptMessage(Answer):
    """A row of a transcript. `index` counts over the view that `speaker` leaves, `timestamp` is the row's own time.

    Only tools' rows have `tool_name` and `call_id`, and `outcome` and `status` if the call did not succeed; `message_id` is then that of
    the message that called.
    """

    index: int
    role: Role
    content: str
    message_id: str
    timestamp: datetime
    tool_name: str = ""
    call_id: str = ""
    outcome: str = ""
    status: str = ""

    @classmethod
    def of(cls, row: TranscriptRow) -> "TranscriptMessage":
        """As it was read. What a row doesn't have is left unset."""
        named = {"tool_name": row.tool_name, "call_id": row.call_id, "outcome": row.outcome, "status": row.status}
        return cls(
            index=row.index,
            role=row.role,
            content=row.content,
            message_id=row.message_id,
            timestamp=row.at,
            **{name: value for name, value in named.items() if value is not None},
        )


class Transcript(Answer):
    """Rows of one path, oldest first."""

    session_id: str
    revision: int
    messages: list[TranscriptMessage]
