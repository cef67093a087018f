"""The limits of a turn: a request may lower what profile and settings allow, never raise it."""

from profiles import Profile
from settings import Settings
from workflows.model.turn import TurnConfig


def steps_allowed(settings: Settings, profile: Profile, config: TurnConfig | None) -> int:
    """Model requests that a turn may make."""
    asked = (profile.max_steps, config.max_steps if config else None)
    return min(settings.max_steps, *(limit for limit in asked if limit is not None), settings.max_steps)


def turn_seconds(settings: Settings) -> float:
    """Seconds that a turn may take."""
    return settings.turn_timeout_seconds


def model_names(settings: Settings, profile: Profile, config: TurnConfig | None) -> list[str]:
    """The model of a turn and those that take over when it has failed for good, in order."""
    first = (config.model if config else None) or profile.model or settings.model
    return list(dict.fromkeys((first, *settings.model_fallbacks)))
