"""Where the oldest retained run does not begin at the session's birth: what came before it stays as the rows have it."""

from dataclasses import dataclass, field

from activities.db.session_tx import sql
from activities.db.shadow import Shadow, owned
from activities.deriving.histories import Story, Write
from workflows.contracts.sessions import PostCard
from workflows.contracts.steps import Opening
from workflows.contracts.turns import LoadHead, NoteSteering
from workflows.model.state import Head


@dataclass
class Made:
    """What retained runs made, by id. `before` are turns that they only went on with: how those stood is not known, and they stay as they are."""

    turns: set[str] = field(default_factory=set)
    before: set[str] = field(default_factory=set)
    messages: set[str] = field(default_factory=set)
    steering: set[str] = field(default_factory=set)

    def add(self, write: Write) -> None:
        """Takes note of a write."""
        asked = write.asked
        if isinstance(asked, PostCard):
            self.messages.add(asked.id)
        elif isinstance(asked, NoteSteering):
            self.steering.add(asked.id)
        elif (turn := getattr(asked, "turn", None)) is not None and turn.turn_id not in self.before:
            if turn.turn_id not in self.turns and turn.attempt > 1:
                self.before.add(turn.turn_id)
                return
            self.turns.add(turn.turn_id)
            opening: Opening | None = getattr(asked, "opening", None)
            if opening and opening.message:
                self.messages |= {opening.message.id, turn.message_id}
            if opening and opening.steering:
                self.messages.add(turn.message_id)

    def plays(self, write: Write) -> bool:
        """Whether a write is of something whose beginning is known."""
        turn = getattr(write.asked, "turn", None)
        return turn is None or turn.turn_id not in self.before


def made_by(story: Story) -> Made:
    """What a session's retained runs made."""
    made = Made()
    for write in story.writes:
        made.add(write)
    return made


def base_of(story: Story) -> Head | None:
    """Where the session stood when the oldest retained run began; None if it was born in it."""
    first = story.runs[0]
    if first.head is not None:
        return first.head
    loaded = first.writes[0] if first.writes else None
    return loaded.done if loaded is not None and isinstance(loaded.asked, LoadHead) else None


async def seed(shadow: Shadow, session_uid: str, story: Story, head: Head, made: Made) -> None:
    """Copies what came before into the shadow, as it was then."""
    conn, batch, turns = shadow.conn, head.batch, sorted(made.turns)
    asked = {"asked_by": batch.turn.turn_id if batch else None, "asked_step": batch.step if batch else None}
    await owned.seed_session(
        conn,
        session_uid=session_uid,
        leaf_id=head.leaf_id,
        revision=head.revision,
        turn_number=head.turn_number,
        owner=head.owner,
        began_at=story.runs[0].began_at,
    )
    await owned.seed_messages(conn, session_uid=session_uid, made=sorted(made.messages))
    await owned.seed_turns(conn, session_uid=session_uid, made=turns)
    await owned.seed_texts(conn, session_uid=session_uid, made=turns, **asked)
    waiting = [call.call_id for call in batch.open] if batch else []
    shown = [call.call_id for call in batch.asked] if batch else []
    await owned.seed_calls(conn, session_uid=session_uid, made=turns, waiting=waiting, asked=shown)
    await owned.seed_batches(conn, session_uid=session_uid, made=turns, **asked)
    await owned.seed_steering(conn, session_uid=session_uid, noted=sorted(made.steering), made=turns)
    also = [batch.message_id] if batch else []
    extended = [row["id"] async for row in owned.extended_messages(conn, session_uid=session_uid, made=turns, also=also)]
    for message_id in extended:
        await owned.rewind_message(conn, session_uid=session_uid, id=message_id)
        await sql.settle_message(conn, session_uid=session_uid, id=message_id)


__all__ = ["Made", "base_of", "made_by", "seed"]
