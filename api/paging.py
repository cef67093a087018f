"""Cursors of lists: opaque to clients, the place of the last row for us."""

import base64
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import Query

from activities.db.reads import Place
from activities.db.search import HitPlace
from api.errors import RequestRefused

Limit = Annotated[int, Query(ge=1, le=500, description="Rows of a page")]
DEFAULT_LIMIT = 50
_CHANGE = re.compile(r"([0-9]{1,18})-([0-9a-f]{8})")


def encode(place: Place | HitPlace) -> str:
    """The cursor behind a row."""
    parts = [place.at.isoformat(), str(place.session_uid)]
    if isinstance(place, HitPlace):
        parts.append(place.id)
    return base64.urlsafe_b64encode(" ".join(parts).encode()).decode().rstrip("=")


def decode(cursor: str | None) -> Place | None:
    """The place that a cursor names, None for none. Raises RequestRefused (422) for anything that `encode` didn't make."""
    if cursor is None:
        return None
    at, uid, _ = _parts(cursor, 0)
    return Place(at, uid)


def decode_hit(cursor: str | None) -> HitPlace | None:
    """The same for a hit's."""
    if cursor is None:
        return None
    at, uid, (id,) = _parts(cursor, 1)
    return HitPlace(at, uid, id)


def _parts(cursor: str, more: int) -> tuple[datetime, UUID, list[str]]:
    """What a cursor says: a time, a session, and so many words more."""
    try:
        text, uid, *words = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode().split(" ")
        at = datetime.fromisoformat(text)
        if len(words) != more or "\0" in "".join(words) or at.tzinfo is None:
            raise ValueError("of another list, with a NUL, or a time without offset")
        return at.astimezone(UTC), UUID(uid), words
    except (ValueError, OverflowError) as error:
        raise RequestRefused(422, "this is not a cursor of this list") from error


def change_cursor(change: int, session_uid: UUID) -> str:
    """The cursor behind a change of a session's messages. It names the session, since its id may be used again by another."""
    return f"{change}-{session_uid.hex[:8]}"


def parse_changes(after: str | None, session_uid: UUID) -> tuple[int, datetime | None]:
    """Where to go on in the changes: behind a number, or later than a time (without offset: UTC). Raises RequestRefused (422)."""
    if after is None:
        return 0, None
    if cursor := _CHANGE.fullmatch(after):
        if cursor[2] != session_uid.hex[:8]:
            raise RequestRefused(422, "this cursor is of an earlier session under this id; begin without one")
        return int(cursor[1]), None
    try:
        since = datetime.fromisoformat(after)
        return 0, since.astimezone(UTC) if since.tzinfo else since.replace(tzinfo=UTC)
    except (ValueError, OverflowError) as error:
        raise RequestRefused(422, f"{after!r} is neither a cursor of this feed nor an ISO time") from error


def next_cursor(places: Sequence[Place | HitPlace], limit: int) -> str | None:
    """The cursor behind the page, None if no row is behind it. `places` are those of the page and, if there is one, of the next row."""
    return encode(places[limit - 1]) if len(places) > limit else None
