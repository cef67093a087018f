"""architecture.md, Components: from a model string to a model, and what is said when that fails."""

import pytest

from activities.llm.models import Models, request_settings
from settings import Settings
from workflows.contracts.errors import TurnFault


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> Models:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DEEPSEEK_API_KEY", "OLLAMA_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    return Models(Settings())


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("openai:gpt-4o", "set OPENAI_API_KEY"),
        ("openai-chat:gpt-4o", "set OPENAI_API_KEY"),
        ("deepseek:x", "set DEEPSEEK_API_KEY"),
        ("ollama:x", "set OLLAMA_BASE_URL"),
        ("groq:x", "pip install 'pydantic-ai-slim[groq]'"),
        ("nowhere:x", "unknown model"),
        ("gpt-4o", "unknown model"),
    ],
)
def test_r89_a_model_that_cannot_be_built_is_a_setup_error_with_the_remedy(models: Models, name: str, words: str) -> None:
    with pytest.raises(TurnFault) as raised:
        models.of(name)
    error = raised.value.error
    assert (error.type, error.retry_allowed) == ("setup_error", True)
    assert name in error.message
    assert words in error.message
    assert "\n" not in error.message
    assert models.problem(name) == error.message


async def test_models_are_built_once_and_share_a_client(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    first, second = models.of("openai-chat:a"), models.of("openai-chat:b")
    assert models.of("openai-chat:a") is first
    assert first.provider is second.provider
    assert request_settings(first) == {"max_retries": 0, "timeout": 60.0}
    await models.close()


def test_models_warm_says_what_is_missing() -> None:
    assert Models(Settings()).warm() == {}
    problems = Models(Settings(model="nowhere:x", model_fallbacks=["demo"])).warm(["gpt", None])
    assert set(problems) == {"nowhere:x", "gpt"}


def test_models_keep_a_bounded_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    models = Models(Settings())
    first = models.of("openai-chat:0")
    for number in range(1, 257):
        models.of(f"openai-chat:{number}")
    assert models.of("openai-chat:0") is not first
