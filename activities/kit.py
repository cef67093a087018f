"""What the activities of one worker share."""

from dataclasses import dataclass, field

from activities.context import Conversations
from activities.db.locks import StepLocks
from activities.db.pool import Database
from activities.llm.models import Models
from profiles import Profile
from profiles.loading import Profiles
from settings import Settings
from workflows.contracts.errors import TurnFault
from workflows.model.turn import TurnError


@dataclass
class Kit:
    """Connections, models and profiles. Built once, by worker.py."""

    settings: Settings
    db: Database
    locks: StepLocks
    models: Models
    profiles: Profiles
    paths: Conversations = field(default_factory=Conversations)
    indexed: bool = False
    kept_prompts: set[str] = field(default_factory=set)
    """SHA-256 of prompts that this worker has seen stored: they are never deleted, so once is enough."""

    def profile(self, name: str) -> Profile:
        """A profile by name. Raises TurnFault with a `setup_error` that says which ones there are."""
        if (profile := self.profiles.get(name)) is None:
            known = ", ".join(sorted(self.profiles))
            raise TurnFault(TurnError.of("setup_error", f"no profile {name!r} on this worker (there are: {known}); check OUTLAST_PROFILES"))
        return profile
