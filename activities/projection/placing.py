"""New rows of the tree, under their parents."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from activities.db.session_tx import SessionTx, sql
from workflows.contracts.errors import Refusal
from workflows.rules.tree import Place, Placement, place_under


@dataclass(frozen=True)
class Row:
    """A message that is new."""

    id: str
    parent_id: str | None
    role: str
    content: str = ""
    turn_id: str | None = None
    profile: str | None = None
    digest: str | None = None


def unknown_parent(message_id: str) -> Refusal:
    """The refusal of a parent that is not there (R62)."""
    return Refusal("unknown_parent", f"there is no message {message_id!r} in this session", parent_id=message_id)


def place_in(row: Mapping[str, Any]) -> Place:
    """Where a row's message stands."""
    return Place.model_validate({name: row[name] for name in Place.model_fields})


async def place_of(tx: SessionTx, message_id: str) -> Place:
    """Where a message stands. Raises Refusal if there is none."""
    row = await sql.message_place(tx.conn, session_uid=tx.uid, message_id=message_id)
    if row is None:
        raise unknown_parent(message_id)
    return place_in(row)


async def grown(tx: SessionTx, parent: Place | None, rows: int) -> Placement:
    """The place under a parent, its branch made or lengthened by `rows`."""
    place = place_under(parent)
    if place.opens_branch:
        await open_branch(tx, place, rows)
    else:
        await sql.grow_branch(tx.conn, session_uid=tx.uid, branch=place.branch, tip_depth=place.depth + rows - 1)
    return place


async def open_branch(tx: SessionTx, place: Placement, rows: int) -> None:
    """A new branch for `rows` messages."""
    await sql.insert_branch(
        tx.conn,
        session_uid=tx.uid,
        branch=place.branch,
        tip_depth=place.depth + rows - 1,
        chain=list(place.chain),
        chain_depths=list(place.chain_depths),
    )


async def insert_row(tx: SessionTx, row: Row, place: Placement, counts: tuple[int, int, int], at: datetime) -> None:
    """Writes a message at its place. `counts` are the transcript rows of its path: all, the user's, the assistant's."""
    await sql.insert_message(
        tx.conn,
        session_uid=tx.uid,
        id=row.id,
        parent_id=row.parent_id,
        role=row.role,
        content=row.content,
        branch=place.branch,
        depth=place.depth,
        count_all=counts[0],
        count_user=counts[1],
        count_assistant=counts[2],
        turn_id=row.turn_id,
        profile=row.profile,
        digest=row.digest,
        change=tx.next_change(),
        at=at,
    )
