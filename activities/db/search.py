"""Full text search over what was said in one's own sessions."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from activities.db.pool import Database
from activities.db.reads import reading, sql


@dataclass(frozen=True, slots=True)
class HitPlace:
    """The last hit of a page: the next one begins behind it."""

    at: datetime
    session_uid: UUID
    id: str


@dataclass(frozen=True, slots=True)
class Hit:
    """A message, or steering, that has the words. `snippet` is a plain piece of its text around them."""

    session_id: str
    message_id: str
    snippet: str
    place: HitPlace


class Search:
    """Searches. `expires` and `held` as for Reads. Raises ServiceUnavailable as all reads do."""

    def __init__(self, database: Database, *, expires: bool = False, held: bool = False) -> None:
        self._database = database
        self._shown = {"expires": expires, "held": held}

    async def messages(self, tenant: str, owner: str, words: str, *, behind: HitPlace | None, count: int) -> list[Hit]:
        """At most `count` hits, newest first. `words` is a query as people write them for web search: words, "phrases", or, -without."""
        async with reading(self._database) as conn:
            rows = sql.search_messages(
                conn,
                tenant=tenant,
                owner=owner,
                words=words,
                before_at=behind and behind.at,
                before_uid=behind and behind.session_uid,
                before_id=behind and behind.id,
                count=count,
                **self._shown,
            )
            return [
                Hit(row["session_id"], row["id"], row["snippet"], HitPlace(row["at"], row["session_uid"], row["id"])) async for row in rows
            ]
