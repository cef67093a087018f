"""Providers that fail, over real HTTP: how often they are asked, who takes over, and what a turn says in the end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.http.test_turn_endings import ended_with, kinds, retry
from tests.provider import Behaviour, Provider, call, fails, says
from tests.system import ASSISTANTS, System, running_system

SOON = {"retry_after_ms": "20"}
MODEL = "openai-chat:m"


@asynccontextmanager
async def provided(
    urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch, *behaviours: Behaviour, **settings: Any
) -> AsyncIterator[tuple[System, Provider]]:
    """The system with a provider that does as it is told."""
    async with Provider(behaviours) as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
        async with running_system(*urls, **{"model": MODEL, "model_retry_seconds": 0.02, **settings}) as system:
            yield system, provider


@pytest.fixture
def urls(database_url: str, temporal_address: str) -> tuple[str, str]:
    return database_url, temporal_address


TYPES: list[tuple[str, Behaviour, bool, int, str]] = [
    ("rate_limit", fails(429, "slow down", **SOON), True, 4, ""),
    ("provider_error", fails(500, "oops"), True, 4, ""),
    ("provider_error", fails(503, "busy", **SOON), True, 4, ""),
    ("provider_error", says("So far", end="garbage"), True, 4, "So far"),
    ("provider_error", says("So far", end="error"), True, 4, "So far"),
    ("connection_error", says("So far", end="reset"), True, 4, "So far"),
    ("connection_error", says("So far", end="fin"), True, 4, "So far"),
    ("connection_error", says("So far", end="cut"), True, 4, "So far"),
    ("timeout", fails(408, "too slow", **SOON), True, 4, ""),
    ("provider_auth", fails(401, "bad key sk-secret"), True, 1, ""),
    ("provider_client_error", fails(400, "what is this"), False, 1, ""),
    ("provider_client_error", fails(404, "no such model", "model_not_found"), False, 1, ""),
    ("provider_client_error", fails(429, "pay first", "insufficient_quota"), False, 1, ""),
    ("context_overflow", fails(400, "too long", "context_length_exceeded"), False, 1, ""),
    ("empty_response", says(), True, 1, ""),
    ("empty_response", says(" ", thinking="hm"), True, 1, " "),
]


@pytest.mark.parametrize(("kind", "behaviour", "retryable", "requests", "kept"), TYPES, ids=range(len(TYPES)))
async def test_r89_s35_s42_every_way_to_fail_has_its_type(
    urls: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    behaviour: Behaviour,
    retryable: bool,
    requests: int,
    kept: str,
) -> None:
    async with provided(urls, monkeypatch, behaviour) as (system, provider):
        turn = await system.chat("s1", id="m1")
        assert (turn["error"]["type"], turn["error"]["retry_allowed"], turn["content"]) == (kind, retryable, kept)
        await ended_with(system, "s1", turn, kind)
        assert len(provider.requests) == requests
        assert "secret" not in str(await system.events("s1"))
        assert [(row["id"], row["content"]) for row in await system.messages("s1")] == [("m1", "hello"), (turn["message_id"], kept)]
        provider.script[:] = [says("Better.")]
        again = await retry(system, "s1", turn)
        if retryable:
            assert (again.json()["content"], again.json()["attempt"], again.json()["error"]) == ("Better.", 2, None)
            assert provider.requests[-1].body == provider.requests[0].body
        else:
            assert (again.status_code, again.json()["code"]) == (409, "not_retryable")
            assert (await system.chat("s1", "go on"))["content"] == "Better."


async def test_r89_what_the_request_names_wrongly_is_a_setup_error(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with provided(urls, monkeypatch, says("hi")) as (system, provider):
        for model, words in (("no-such-model", "unknown model"), ("anthropic:x", "anthropic")):
            turn = await system.chat("s1", config={"model": model})
            assert (turn["error"]["type"], turn["error"]["retry_allowed"]) == ("setup_error", True)
            assert words in turn["error"]["message"]
        assert not provider.requests
        assert (await system.chat("s1", config={"model": "openai-chat:other", "temperature": 0.5}))["content"] == "hi"
        assert (provider.requests[-1].body["model"], provider.requests[-1].body["temperature"]) == ("other", 0.5)


async def test_r89_a_model_that_can_not_be_built_hands_over_to_the_next(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"model": "nowhere:x", "model_fallbacks": ["groq:x", "openai-chat:third"]}
    async with provided(urls, monkeypatch, fails(401), says("I can."), **settings) as (system, provider):
        turn = await system.chat("s1")
        assert (turn["error"]["type"], turn["model"], len(provider.requests)) == ("provider_auth", "openai-chat:third", 1)
        again = (await retry(system, "s1", turn)).json()
        assert (again["content"], again["model"], again["error"]) == ("I can.", "openai-chat:third", None)
        provider.script[:] = [fails(400)]
        assert (await system.chat("s1"))["error"]["type"] == "provider_client_error"


CLASHING = """
from pydantic_ai.toolsets import FunctionToolset, WrapperToolset
from profiles import Profile

def who() -> str:
    \"\"\"Says who.\"\"\"
    return "me"

profile = Profile("clashing", "You clash.", tools=[WrapperToolset(FunctionToolset([who])) for _ in range(2)])
"""


async def test_r89_tools_that_can_not_be_offered_are_a_setup_error(urls: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "clashing.py").write_text(CLASHING)
    async with running_system(*urls, profiles=[ASSISTANTS, str(tmp_path / "clashing.py")]) as system:
        turn = await system.chat("s1", profile="clashing")
        assert (turn["error"]["type"], turn["error"]["retry_allowed"]) == ("setup_error", True)
        assert "two tools have this name" in turn["error"]["message"]
        assert (await system.chat("s1", "go on", profile="assistant"))["error"] is None


BUDGETS: list[tuple[dict[str, int], list[int | None], str | None]] = [
    ({"max_output_tokens": 30}, [30, 25], "usage_limit"),
    ({"max_output_tokens": 100_000}, [None, None], None),
    ({}, [None, None], None),
]


@pytest.mark.parametrize(("budget", "allowed", "error"), BUDGETS, ids=("small", "large", "none"))
async def test_r85_an_answer_is_not_longer_than_the_budget_allows(
    urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch, budget: dict[str, int], allowed: list[int | None], error: str | None
) -> None:
    first = says("Let me add.", calls=[call("add", {"a": 1, "b": 2})], usage=[9, 5])
    async with provided(urls, monkeypatch, first, says("It is", finish="length", usage=[9, 25])) as (system, provider):
        turn = await system.chat("s1", config={"budget": budget})
        assert [request.body.get("max_completion_tokens") for request in provider.requests] == allowed
        assert (turn["content"], turn["error"] and turn["error"]["type"]) == ("Let me add.It is", error)
        assert turn["usage"]["output_tokens"] == 30


async def test_r89_a_conversation_that_can_not_be_read_is_a_session_error(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with provided(urls, monkeypatch, says("hi")) as (system, provider):
        await system.chat("s1")
        await system.conn.execute('update model_messages set body = \'{"kind": "of another time"}\'')
    async with running_system(*urls, like=system, model=MODEL) as system:
        turn = await system.chat("s1")
        assert (turn["error"]["type"], turn["error"]["retry_allowed"]) == ("session_error", False)
        await ended_with(system, "s1", turn, "session_error")
        assert len(provider.requests) == 1


async def test_r89_a_passing_failure_passes_and_nothing_of_it_stays(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    behaviours = (fails(429, **SOON), says("Hal", end="reset"), fails(503, **SOON), says("Hallo"))
    async with provided(urls, monkeypatch, *behaviours) as (system, provider):
        turn = await system.chat("s1")
        assert (turn["content"], turn["error"], turn["attempt"]) == ("Hallo", None, 1)
        assert len(provider.requests) == 4
        assert kinds(await system.events("s1"), turn["turn_id"]).count("step.restarted") == 1
        assert (await system.messages("s1"))[1]["segments"] == [{"kind": "text", "text": "Hallo"}]


async def test_r84_a_provider_that_asks_for_more_time_than_there_is(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with provided(urls, monkeypatch, fails(429, retry_after="25"), turn_timeout_seconds=20) as (system, provider):
        turn = await system.chat("s1")
        assert (turn["error"]["type"], len(provider.requests)) == ("rate_limit", 1)


async def test_fallbacks_take_over_in_order_each_with_its_own_attempts(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    behaviours = (*[fails(503)] * 4, fails(401), says("I can."))
    settings = {"model_fallbacks": ["openai-chat:second", "openai-chat:third"]}
    async with provided(urls, monkeypatch, *behaviours, **settings) as (system, provider):
        turn = await system.chat("s1")
        assert (turn["content"], turn["model"], turn["error"]) == ("I can.", "openai-chat:third", None)
        assert [request.body["model"] for request in provider.requests] == ["m"] * 4 + ["second", "third"]
        provider.script[:] = [says("Back.")]
        assert (await system.chat("s1"))["model"] == MODEL


async def test_fallbacks_that_fail_too_leave_the_last_ones_error(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    behaviours = (fails(401), fails(429, **SOON))
    async with provided(urls, monkeypatch, *behaviours, model_fallbacks=["openai-chat:second"]) as (system, provider):
        turn = await system.chat("s1")
        assert (turn["error"]["type"], len(provider.requests)) == ("rate_limit", 5)
    async with provided(urls, monkeypatch, fails(400, "x", "context_length_exceeded"), model_fallbacks=["openai-chat:second"]) as (
        system,
        provider,
    ):
        assert (await system.chat("s2"))["error"]["type"] == "context_overflow"
        assert len(provider.requests) == 1


async def test_another_provider_is_not_given_the_first_ones_thinking(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    first = says("Let me add.", thinking="My own thoughts.", calls=[call("add", {"a": 1, "b": 2})])
    async with Provider([says("Three.", thinking="Mine.")]) as other:
        monkeypatch.setenv("OLLAMA_BASE_URL", other.url)
        async with provided(urls, monkeypatch, first, fails(401), model_fallbacks=["ollama:m"]) as (system, provider):
            turn = await system.chat("s1")
            assert (turn["content"], turn["model"]) == ("Let me add.Three.", "ollama:m")
            assert "My own thoughts." in str(provider.requests[1].body)
            given = other.requests[0].body["messages"]
            assert "thoughts" not in str(given)
            assert [message["role"] for message in given] == ["system", "user", "assistant", "tool"]
            provider.script[:] = [says("Again.")]
            assert (await system.chat("s1", "and?"))["content"] == "Again."
            sent = str(provider.requests[-1].body)
            assert "My own thoughts." in sent and "Mine." not in sent and "Three." in sent
            shown = [segment["text"] for segment in (await system.messages("s1"))[1]["segments"] if segment["kind"] == "thinking"]
            assert shown == ["My own thoughts.", "Mine."]


async def test_a_long_tool_result_is_cut_for_the_model_and_it_is_told_so(urls: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    asks = says(calls=[call("big", {"characters": 5000})])
    async with provided(urls, monkeypatch, asks, says("Long."), tool_text_limit=300) as (system, provider):
        await system.chat("s1")
        told = provider.requests[1].body["messages"][-1]["content"]
        assert told.startswith("x" * 300 + "\n[Cut here: the first 300 of 5,000 characters are shown, 4,700 are left out.")
        assert (await system.messages("s1"))[1]["segments"][0]["tools"][0]["output"] == "x" * 5000
