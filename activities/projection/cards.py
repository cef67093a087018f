"""Host cards: what a host shows in the conversation. The model reads their text, never the components (R170, R171)."""

from activities.db.session_tx import SessionTx, moment, sql
from activities.llm.translate import LIBRARY, dump, user_request
from activities.projection.display import announce_new
from activities.projection.placing import Row, grown, insert_row, place_of
from workflows.contracts.errors import Refusal
from workflows.contracts.json_text import json_text
from workflows.contracts.sessions import PostCard


async def post(tx: SessionTx, card: PostCard) -> bool:
    """Writes a card under the active leaf, which it becomes. Raises Refusal for an id that is taken.

    A repeat of this very write changes nothing and is as good. False: the card was posted at another time, and nothing is written.
    """
    at = moment(card.at)
    taken = await sql.digest_of(tx.conn, session_uid=tx.uid, message_id=card.id)
    if taken is not None:
        if taken["digest"] == card.digest:
            return tx.revision == card.revision
        raise Refusal("duplicate_id", f"{card.id!r} is the id of another message of this session")
    parent = await place_of(tx, card.parent_id) if card.parent_id else None
    place = await grown(tx, parent, 1)
    counts = (parent.count_all + 1, parent.count_user, parent.count_assistant) if parent else (1, 0, 0)
    row = Row(card.id, card.parent_id, "host", card.content, profile=card.profile, digest=card.digest)
    await insert_row(tx, row, place, counts, at)
    components = [json_text({name: value for name, value in segment.items() if name != "kind"}) for segment in card.segments]
    places = list(range(len(components)))
    await sql.insert_cards(tx.conn, session_uid=tx.uid, message_id=card.id, positions=places, datas=components)
    if card.content:
        await sql.insert_model_messages(
            tx.conn,
            session_uid=tx.uid,
            message_id=card.id,
            turn_id=None,
            attempt=None,
            step=None,
            positions=[0],
            kinds=["request"],
            bodies=[dump(user_request(card.content, None, card.at))],
            library=LIBRARY,
        )
    shown = {"id": card.id, "parent_id": card.parent_id, "role": "host", "content": card.content, "turn_id": None, "profile": card.profile}
    segments = [{"position": place, "kind": "component", "data": one} for place, one in enumerate(components)]
    await announce_new(tx, shown, None, at, segments)
    tx.change(at, message_count=tx.message_count + 1, active_leaf_id=card.id, revision=card.revision)
    return True
