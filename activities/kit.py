"""What the activities of one worker share."""

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

from activities.context import Conversations
from activities.db.locks import StepLocks
from activities.db.pool import Database
from activities.db.session_tx import SessionTx, session_tx
from activities.db.storage import Storage
from activities.llm.models import Models
from profiles import Profile
from profiles.loading import Profiles
from settings import Settings
from workflows.contracts.errors import TurnFault
from workflows.contracts.steps import Birth
from workflows.model.session import SessionRef
from workflows.model.turn import TurnError


@dataclass
class Kit:
    """Connections, models and profiles. Built once, by worker.py."""

    settings: Settings
    db: Database
    storage: Storage
    locks: StepLocks
    models: Models
    profiles: Profiles
    paths: Conversations = field(default_factory=Conversations)
    indexed: bool = False
    kept_prompts: set[str] = field(default_factory=set)
    """SHA-256 of prompts that this worker has seen stored: they are never deleted, so once is enough."""

    def session(
        self, session: SessionRef, turn_id: str | None = None, birth: Birth | None = None
    ) -> AbstractAsyncContextManager[SessionTx]:
        """One transaction on a session, which lives on as long as the settings say. Raises as `session_tx` does."""
        return session_tx(
            self.db,
            session,
            turn_id,
            birth,
            ttl_seconds=self.settings.session_ttl_hours * 3600,
            tool_text_limit=self.settings.tool_text_limit,
        )

    def profile(self, name: str) -> Profile:
        """A profile by name. Raises TurnFault with a `setup_error` that says which ones there are."""
        if (profile := self.profiles.get(name)) is None:
            known = ", ".join(sorted(self.profiles))
            raise TurnFault(TurnError.of("setup_error", f"no profile {name!r} on this worker (there are: {known}); check OUTLAST_PROFILES"))
        return profile
