"""The limits of a turn: a request may lower what profile and settings allow, never raise it."""

from profiles import Profile
from settings import Settings
from workflows.contracts.errors import Refusal
from workflows.contracts.steps import Opening
from workflows.model.budget import Budget
from workflows.model.turn import TurnConfig
from workflows.rules.attachments import problem
from workflows.rules.limits import budget_of, lowest


def steps_allowed(settings: Settings, profile: Profile, config: TurnConfig | None) -> int:
    """Model requests that a turn may make."""
    asked = (settings.max_steps, profile.max_steps, config.max_steps if config else None)
    return min(limit for limit in asked if limit is not None)


def turn_budget(settings: Settings, profile: Profile, config: TurnConfig | None) -> Budget:
    """What a turn may use."""
    asked = (profile.budget, config.budget if config else None)
    return lowest(budget_of(settings.budget.turn.model_dump()), *(budget_of(budget) for budget in asked if budget))


def check_files(settings: Settings, opening: Opening | None) -> None:
    """Refuses a message with files that this installation does not take. The api asks the same; a signal comes past it."""
    files = opening.message.attachments if opening and opening.message else ()
    taken = settings.attachments
    for file in files:
        if wrong := problem(file, taken.media_types, allow_urls=taken.allow_urls):
            raise Refusal("bad_request", wrong)


def turn_seconds(settings: Settings) -> float:
    """Seconds that a turn may take."""
    return settings.turn_timeout_seconds


def model_names(settings: Settings, profile: Profile, config: TurnConfig | None) -> list[str]:
    """The model of a turn and those that take over when it has failed for good, in order."""
    first = (config.model if config else None) or profile.model or settings.model
    return list(dict.fromkeys((first, *settings.model_fallbacks)))
