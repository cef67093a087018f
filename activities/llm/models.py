"""From a model string to a model. Built once per worker; what goes wrong is said in words that name the variable or the extra to install."""

import re
from collections.abc import Iterable
from typing import Any, cast

from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider
from pydantic_ai.settings import ModelSettings

from activities.llm.demo import DemoModel
from activities.llm.instrumented import instrumentation
from settings import Settings
from workflows.contracts.errors import TurnFault
from workflows.contracts.policies import PROVIDER_SILENCE_SECONDS
from workflows.model.turn import TurnError

DEMO = "demo"

SURELY_TAKEN_TOKENS = 4096
"""An answer's limit that every provider takes. A higher one may be more than a model can, for which the request would be refused."""

_KEPT_MODELS = 256


class Models:
    """The models of one worker. Models of one provider share its HTTP client; a model string is built at its first use."""

    def __init__(self, settings: Settings) -> None:
        self._named = (settings.model, *settings.model_fallbacks)
        self._models: dict[str, Model] = {}
        self._providers: dict[str, Provider[Any]] = {}
        self.instrument = instrumentation(settings.tracing)
        """What model requests are traced with."""

    def of(self, name: str) -> Model:
        """The model of a model string. Raises TurnFault with a `setup_error` for an unknown model, a missing key or a missing package."""
        model = self._models.get(name)
        if model is None:
            model = self._built(name)
            if len(self._models) >= _KEPT_MODELS:  # a request may name any model; what was built first is not worth keeping
                del self._models[next(iter(self._models))]
            self._models[name] = model
        return model

    def problem(self, name: str) -> str | None:
        """Why a model can't be used as this process is configured, for `outlast doctor`; None if it can. Sends nothing."""
        try:
            self.of(name)
        except TurnFault as fault:
            return fault.error.message
        return None

    def warm(self, names: Iterable[str | None] = ()) -> dict[str, str]:
        """Builds the configured models and those named, so that no step pays for imports. Returns what can't be built, and why."""
        wanted = dict.fromkeys((*self._named, *(name for name in names if name)))
        problems = {name: self.problem(name) for name in wanted}
        return {name: problem for name, problem in problems.items() if problem is not None}

    async def close(self) -> None:
        """Closes the connections to the providers."""
        providers, self._providers, self._models = list(self._providers.values()), {}, {}
        for provider in providers:
            async with provider:  # leaving is what closes its client
                pass

    def _built(self, name: str) -> Model:
        try:
            return DemoModel() if name == DEMO else infer_model(name, self._provider)
        except ImportError as error:
            raise _fault(name, _missing_package(error)) from error
        except Exception as error:
            raise _fault(name, _missing_setting(error)) from error

    def _provider(self, name: str) -> Provider[Any]:
        provider = self._providers.get(name)
        if provider is None:
            provider = self._providers[name] = infer_provider(name)
        return provider


def request_settings(model: Model, temperature: float | None = None, most_tokens: int | None = None) -> ModelSettings:
    """What every request of ours is sent with. `most_tokens` is what a budget leaves of output tokens (None: no limit).

    The step counts and repeats failures, so client libraries don't. Sessions sleep for months, so OpenAI is not to keep
    responses for us that it drops after a while.
    """
    settings = ModelSettings(max_retries=0, timeout=PROVIDER_SILENCE_SECONDS)
    if temperature is not None:
        settings["temperature"] = temperature
    own = (model.settings or {}).get("max_tokens", SURELY_TAKEN_TOKENS + 1)
    if most_tokens is not None and most_tokens < own and most_tokens <= SURELY_TAKEN_TOKENS:
        settings["max_tokens"] = most_tokens
    if _is_openai_responses(model):
        return cast("ModelSettings", {**settings, "openai_store": False})
    return settings


def _is_openai_responses(model: Model) -> bool:
    """By name: an import of the class would cost every offline process a client library."""
    return any(base.__name__ == "OpenAIResponsesModel" for base in type(model).__mro__)


def _fault(name: str, problem: str) -> TurnFault:
    return TurnFault(TurnError.of("setup_error", f"model {name!r}: {problem}"))


def _missing_package(error: ImportError) -> str:
    named = re.search(r"pydantic-ai-slim\[([\w-]+)\]", str(error))
    if named is None:
        return _one_line(f"{type(error).__name__}: {error}")
    return f"its package is not installed; pip install 'pydantic-ai-slim[{named[1]}]'"


def _missing_setting(error: Exception) -> str:
    text = _one_line(str(error))
    if (variable := re.search(r"[Ss]et the `([A-Z0-9_]+)` environment variable", text)) is not None:
        return f"set {variable[1]}"
    if text.startswith(("Unknown model", "Unknown provider")):
        return "unknown model; name it as provider:model, e.g. openai-chat:gpt-4o-mini, or use demo"
    return text.split(". ")[0]


def _one_line(text: str) -> str:
    return " ".join(text.split())
