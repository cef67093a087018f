"""The conversation a model step starts from: loaded by reference, kept parsed for as long as the worker is warm."""

from collections import OrderedDict
from collections.abc import Sequence

from pydantic_ai.messages import ModelMessage

from activities.db.pool import Database
from activities.db.session_tx import sql
from activities.llm.translate import load

KEPT_PATHS = 500
KEPT_MESSAGES = 50_000


class Conversations:
    """Parsed paths, keyed by (session, message, its change number): a key names one state of one path for ever.

    Cached messages are shared and must not be changed in place.
    """

    def __init__(self, *, kept_paths: int = KEPT_PATHS, kept_messages: int = KEPT_MESSAGES) -> None:
        self._paths: OrderedDict[tuple[str, str, int], tuple[ModelMessage, ...]] = OrderedDict()
        self._kept_paths = kept_paths
        self._kept_messages = kept_messages
        self._messages = 0
        self.loads = 0

    async def up_to(self, db: Database, session_uid: str, message_id: str, change: int) -> tuple[ModelMessage, ...]:
        """What the model saw from the root to `message_id`, whose change number is `change`. Raises ServiceUnavailable."""
        key = (session_uid, message_id, change)
        if (known := self._paths.get(key)) is not None:
            self._paths.move_to_end(key)
            return known
        async with db.connection() as conn:
            bodies = [row["body"] async for row in sql.path_model_messages(conn, session_uid=session_uid, message_id=message_id)]
        self.loads += 1
        path = tuple(load(bodies))
        self._keep(key, path)
        return path

    def extend(self, session_uid: str, message_id: str, change: int, path: Sequence[ModelMessage], bodies: Sequence[str]) -> None:
        """Keeps the path of a message that grew. The new messages are parsed from what was stored, so that a warm and a cold
        worker send the same bytes.
        """
        self._keep((session_uid, message_id, change), (*path, *load(bodies)))

    def _keep(self, key: tuple[str, str, int], path: tuple[ModelMessage, ...]) -> None:
        if (before := self._paths.pop(key, None)) is not None:
            self._messages -= len(before)
        self._paths[key] = path
        self._messages += len(path)
        while self._paths and (len(self._paths) > self._kept_paths or self._messages > self._kept_messages):
            _, dropped = self._paths.popitem(last=False)
            self._messages -= len(dropped)
