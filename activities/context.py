"""The conversation a model step starts from: loaded by reference, kept parsed for as long as the worker is warm."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic_ai.messages import ModelMessage

from activities.db.pool import Database
from activities.db.session_tx import sql
from activities.llm.translate import load

KEPT_PATHS = 500
KEPT_MESSAGES = 50_000
KEPT_CHARACTERS = 256_000_000
"""Of stored JSON. Attachments make a message large."""


@dataclass(frozen=True)
class PathKey:
    """Names the path to a message of which `count` model messages are stored, the last by (`turn_id`, `attempt`)."""

    session_uid: str
    message_id: str
    count: int
    turn_id: str | None
    attempt: int | None

    @classmethod
    def of(cls, session_uid: str, tail: Mapping[str, Any]) -> "PathKey":
        """The key of a message as its row shows it now."""
        return cls(session_uid, tail["id"], tail["next_model_message"], tail["last_turn_id"], tail["last_attempt"])


@dataclass(frozen=True)
class Path:
    """A conversation as the model saw it, `size` characters of JSON. `settled`: by model string, how much of its beginning is sent as it is
    (llm/prepare.py). `kept` is the key under which it, or the beginning that it grew from, is kept.
    """

    messages: tuple[ModelMessage, ...] = ()
    settled: Mapping[str, int] = field(default_factory=dict)
    size: int = 0
    kept: PathKey | None = None

    def settled_for(self, model: str, count: int) -> "Path":
        """The same conversation, with what is known about one more model."""
        return replace(self, settled={**self.settled, model: count})


class Conversations:
    """Parsed paths, keyed by what the path ends with: a key names one state of one path for ever.

    Cached messages are shared and must not be changed in place.
    """

    def __init__(self, *, kept_paths: int = KEPT_PATHS, kept_messages: int = KEPT_MESSAGES, kept_characters: int = KEPT_CHARACTERS) -> None:
        self._paths: OrderedDict[PathKey, Path] = OrderedDict()
        self._kept_paths = kept_paths
        self._kept_messages = kept_messages
        self._kept_characters = kept_characters
        self._messages = 0
        self._characters = 0
        self.loads = 0

    async def up_to(self, db: Database, key: PathKey) -> Path:
        """What the model saw from the root to the end of a message. Raises ServiceUnavailable."""
        if (known := self._paths.get(key)) is not None:
            self._paths.move_to_end(key)
            return known
        async with db.connection() as conn:
            bodies = [row["body"] async for row in sql.path_model_messages(conn, session_uid=key.session_uid, message_id=key.message_id)]
        self.loads += 1
        path = Path(tuple(load(bodies)), size=sum(map(len, bodies)), kept=key)
        self._keep(key, path)
        return path

    def extend(self, key: PathKey, path: Path, bodies: Sequence[str]) -> None:
        """Keeps a path that grew by `bodies`. They are parsed from what was stored, so that a warm and a cold worker send the same bytes.

        It takes the place of the state that it grew from, which only a branch would ask for: else a long conversation would push out all
        others with states of its own.
        """
        if path.kept is not None:
            self._drop(path.kept)
        self._keep(key, Path((*path.messages, *load(bodies)), path.settled, path.size + sum(map(len, bodies)), key))

    def _keep(self, key: PathKey, path: Path) -> None:
        self._drop(key)
        self._paths[key] = path
        self._count(path, 1)
        while self._paths and self._too_much:
            _, dropped = self._paths.popitem(last=False)
            self._count(dropped, -1)

    def _drop(self, key: PathKey) -> None:
        if (known := self._paths.pop(key, None)) is not None:
            self._count(known, -1)

    def _count(self, path: Path, times: int) -> None:
        self._messages += times * len(path.messages)
        self._characters += times * path.size

    @property
    def _too_much(self) -> bool:
        return len(self._paths) > self._kept_paths or self._messages > self._kept_messages or self._characters > self._kept_characters
