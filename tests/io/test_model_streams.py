"""Model requests over real HTTP, in both OpenAI wire formats, against a provider that misbehaves on demand."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelAPIError
from pydantic_ai.messages import InstructionPart, ModelMessage, ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from activities.failures import ProviderFailure, classify
from activities.llm.models import Models, request_settings
from activities.llm.stream import ModelStream
from activities.llm.tools import Toolbox
from activities.llm.translate import RecordedCall, content_of, display, dump, load, tool_returns, usage_of, user_request
from profiles.demo import profile
from settings import Settings
from tests.provider import Behaviour, Provider, call, fails, says
from tests.services import PATIENCE_SECONDS
from tests.sinks import Watcher

AT = "2026-01-02T03:04:05+00:00"
HELLO: list[ModelMessage] = [user_request("hello", None, AT)]
PARTIAL: list[dict[str, Any]] = [{"text": "par"}, {"text": "tial"}]


@dataclass
class Rig:
    """A provider, and a model that talks to it."""

    provider: Provider
    model: Model
    watcher: Watcher

    def stream(self, behaviour: Behaviour, history: list[ModelMessage] = HELLO, **more: Any) -> ModelStream:
        self.provider.script[:] = [behaviour]
        return ModelStream(self.model, history, **more)

    async def answer(self, behaviour: Behaviour, history: list[ModelMessage] = HELLO, **more: Any) -> ModelResponse:
        return await self.stream(behaviour, history, **more).run(self.watcher)

    async def failure(self, behaviour: Behaviour, **more: Any) -> tuple[ProviderFailure, ModelResponse | None]:
        stream = self.stream(behaviour, **more)
        with pytest.raises(ModelAPIError) as raised:
            await stream.run(self.watcher)
        return classify(raised.value), stream.partial


@pytest.fixture(params=["openai-chat:gpt-4o", "openai:gpt-4o"])
async def rig(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Rig]:
    async with Provider() as provider:
        monkeypatch.setenv("OPENAI_BASE_URL", provider.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-not-a-key")
        models = Models(Settings())
        yield Rig(provider, models.of(request.param), Watcher())
        await models.close()


async def test_r77_thinking_text_calls_text_arrive_and_are_kept_in_order(rig: Rig) -> None:
    calls = [call("dice", {"sides": 6}, "c1"), call("open", {"url": "/"}, "c2")]
    response = await rig.answer(
        {
            "stream": [
                {"thinking": "hm"},
                {"text": "be"},
                {"pause": 0.01},
                {"text": "fore"},
                {"calls": calls, "chunks": 3},
                {"text": "after"},
            ]
        }
    )
    assert rig.watcher.joined() == [
        (0, "thinking", "hm"),
        (1, "text", "before"),
        ("calls", [("dice", {"sides": 6}), ("open", {"url": "/"})]),
        (4, "text", "after"),
    ]
    assert [one.kind for one in display(response)] == ["thinking", "text", "tool_group", "text"]
    usage = usage_of(response)
    assert (usage.input_tokens, usage.output_tokens, usage.tool_calls) == (12, 5, 2)
    assert dump(load([dump(response)])[0]) == dump(response)


async def test_r127_results_are_sent_in_call_order_once(rig: Rig) -> None:
    asked = load([dump(await rig.answer(says(calls=[call("a", {}, "c1"), call("b", {}, "c2")])))])[0]
    results = [RecordedCall("c1", "a", '{"n":1}'), RecordedCall("c2", "b", '"no"', "denied", "denied")]
    await rig.answer(says("ok"), [*HELLO, asked, tool_returns(results, AT)])
    sent = str(rig.provider.requests[-1].body)
    assert sent.index('{"n":1}') < sent.index("was not performed. Reason given: no")
    assert len(rig.provider.requests) == 2


async def test_instructions_and_tools_are_sent_and_openai_keeps_nothing(rig: Rig) -> None:
    tools = await Toolbox(profile).definitions()
    await rig.answer(says("ok"), instructions=[InstructionPart(content="Be brief.")], tools=tools)
    body = rig.provider.requests[-1].body
    assert "Be brief." in str(body)
    assert [tool.get("name") or tool["function"]["name"] for tool in body["tools"]] == [
        "current_time",
        "roll_dice",
        "open_page",
        "ask_user",
    ]
    if rig.provider.requests[-1].path.endswith("/responses"):
        assert body["store"] is False


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        ("cut", "connection_error"),
        ("fin", "connection_error"),
        ("reset", "connection_error"),
        ("garbage", "provider_error"),
        ("error", "provider_error"),
    ],
)
async def test_l03_a_stream_that_breaks_is_an_error_and_keeps_its_text(rig: Rig, end: str, kind: str) -> None:
    failure, partial = await rig.failure({"stream": PARTIAL, "end": end})
    assert (failure.error.type, failure.again) == (kind, True)
    assert partial is not None
    assert (content_of(partial), partial.state, partial.finish_reason) == ("partial", "interrupted", None)
    assert len(rig.provider.requests) == 1
    again = await rig.answer(says("and on"), [*HELLO, *load([dump(partial)]), *HELLO])
    assert content_of(again) == "and on"


@pytest.mark.parametrize(
    ("status", "kind", "again"),
    [
        (400, "provider_client_error", False),
        (401, "provider_auth", False),
        (402, "provider_client_error", False),
        (403, "provider_auth", False),
        (404, "provider_client_error", False),
        (408, "timeout", True),
        (409, "provider_client_error", True),
        (413, "context_overflow", False),
        (422, "provider_client_error", False),
        (429, "rate_limit", True),
        (500, "provider_error", True),
        (502, "provider_error", True),
        (503, "provider_error", True),
        (504, "provider_error", True),
        (529, "provider_error", True),
    ],
)
async def test_r89_a_status_has_one_meaning_and_is_asked_once(rig: Rig, status: int, kind: str, again: bool) -> None:
    failure, partial = await rig.failure(fails(status, retry_after="3"))
    assert (failure.error.type, failure.again) == (kind, again)
    assert failure.retry_after == (3 if again else None)
    assert "sk-not-a-key" not in failure.error.message
    assert partial is None
    assert len(rig.provider.requests) == 1


async def test_r89_an_overflow_and_an_empty_purse_are_told_from_other_rejections(rig: Rig) -> None:
    overflow, _ = await rig.failure(fails(400, "too long", code="context_length_exceeded"))
    assert overflow.error.type == "context_overflow"
    quota, _ = await rig.failure(fails(429, "pay", code="insufficient_quota"))
    assert (quota.error.type, quota.again) == ("provider_client_error", False)


async def test_r84_silence_is_a_timeout(rig: Rig) -> None:
    settings: ModelSettings = {**request_settings(rig.model), "timeout": 1.0}
    failure, partial = await rig.failure({"stream": PARTIAL, "end": "stall"}, settings=settings)
    assert (failure.error.type, failure.again) == ("timeout", True)
    assert partial is not None


async def test_r91_cancelling_closes_the_connection_at_once(rig: Rig) -> None:
    stream = rig.stream({"stream": PARTIAL, "end": "stall"})
    task = asyncio.create_task(stream.run(rig.watcher))
    while len(rig.watcher.seen) < 2:
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.wait_for(rig.provider.requests[-1].left.wait(), PATIENCE_SECONDS)  # it would answer for ever
    assert stream.partial is not None
    assert content_of(stream.partial) == "partial"


@pytest.mark.parametrize("rig", ["openai-chat:gpt-4o"], indirect=True)
async def test_l03_a_server_that_never_says_why_it_ended_can_be_allowed(rig: Rig) -> None:
    behaviour = {"stream": PARTIAL, "finish": None}
    failure, _ = await rig.failure(behaviour)
    assert failure.error.type == "connection_error"
    assert content_of(await rig.answer(behaviour, requires_end=False)) == "partial"
