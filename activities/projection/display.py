"""The event that carries a message as readers see it."""

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pydantic_core import to_jsonable_python

from activities.db.messages import display
from activities.db.session_tx import SessionTx, sql


async def announce_new(
    tx: SessionTx, row: Mapping[str, Any], turn_id: str | None, at: datetime, segments: Iterable[Mapping[str, Any]] = ()
) -> None:
    """`message.recorded` for a row that this transaction inserted, with its segments."""
    nothing_yet = {"model": None, "usage": None, "error": None, "attachments": None, "created_at": at, "updated_at": at}
    await _announce(tx, display({**nothing_yet, **row}, segments), turn_id, at)


async def announce_settled(tx: SessionTx, message_id: str, turn_id: str | None, at: datetime) -> None:
    """`message.recorded` for an assistant message with everything that this transaction made of it; its path is counted again."""
    row = await sql.settle_message(tx.conn, session_uid=tx.uid, id=message_id)
    more = {name: row[name] for name in ("more", "more_user", "more_assistant")}
    if row["followed"] and any(more.values()):
        await sql.shift_counts(tx.conn, session_uid=tx.uid, id=message_id, **more)
    await _announce(tx, display(dict(row), json.loads(row["segments"]), json.loads(row["calls"])), turn_id, at)


async def _announce(tx: SessionTx, shown: dict[str, Any], turn_id: str | None, at: datetime) -> None:
    # Segments are JSON already, and may be megabytes.
    rest = to_jsonable_python({name: value for name, value in shown.items() if name != "segments"})
    await tx.announce("message.recorded", turn_id, at, {"message": {name: rest.get(name, value) for name, value in shown.items()}})
