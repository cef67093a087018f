"""The small model's own wire, asked by pydantic-ai: what the conversation of this folder stands on."""

import asyncio
from collections.abc import AsyncIterator

import httpx
import pytest
from pydantic_ai.direct import model_request, model_request_stream
from pydantic_ai.exceptions import ModelContextWindowExceededError
from pydantic_ai.messages import ModelMessage, ModelRequest, PartDeltaEvent, ToolCallPartDelta, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from tests.live.serving import ModelServer

pytestmark = pytest.mark.timeout(600)

ORDER = {"type": "string", "pattern": "^[A-Z]-[0-9]{4}$"}
TOOLS = [
    ToolDefinition(
        name="find_order",
        description="Looks up an order.",
        parameters_json_schema={
            "type": "object",
            "properties": {"order": ORDER},
            "required": ["order"],
            "additionalProperties": False,
        },
    ),
    ToolDefinition(
        name="wrap",
        description="Chooses paper.",
        parameters_json_schema={
            "type": "object",
            "properties": {"colour": {"enum": ["red", "blue"]}},
            "required": ["colour"],
            "additionalProperties": False,
        },
    ),
]


@pytest.fixture
async def asked(model: ModelServer) -> AsyncIterator[OpenAIChatModel]:
    """The model as pydantic-ai knows it."""
    async with OpenAIChatModel(model.model, provider=OpenAIProvider(base_url=model.url, api_key="none")) as asked:
        yield asked


def user(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text)])


async def test_live_words_are_streamed_with_reason_and_usage(asked: OpenAIChatModel) -> None:
    async with model_request_stream(asked, [user("Tell me about the sea.")], model_settings=ModelSettings(max_tokens=12)) as stream:
        pieces = [event async for event in stream if isinstance(event, PartDeltaEvent)]
    response = stream.get()
    assert len(pieces) > 5
    assert response.text
    assert (response.finish_reason, response.usage.output_tokens) == ("length", 12)
    whole = await model_request(asked, [user("Tell me about the sea.")], model_settings=ModelSettings(max_tokens=12))
    assert whole.text == response.text
    assert whole.usage.input_tokens == response.usage.input_tokens > 5


async def test_live_a_named_tool_is_called_and_its_result_read(asked: OpenAIChatModel) -> None:
    history: list[ModelMessage] = [user("Please find_order B-2041 for me.")]
    parameters = ModelRequestParameters(function_tools=TOOLS)
    async with model_request_stream(asked, history, model_request_parameters=parameters) as stream:
        deltas = [event.delta async for event in stream if isinstance(event, PartDeltaEvent)]
    response = stream.get()
    (call,) = response.tool_calls
    assert (call.tool_name, call.args_as_dict()) == ("find_order", {"order": "B-2041"})
    assert len([delta for delta in deltas if isinstance(delta, ToolCallPartDelta)]) > 5
    assert response.finish_reason == "tool_call"
    result = '{"order":"B-2041","status":"shipped","arrives":"Thursday"}'
    history += [response, ModelRequest(parts=[ToolReturnPart("find_order", result, tool_call_id=call.tool_call_id)])]
    answer = await model_request(asked, history, model_request_parameters=parameters)
    assert (answer.tool_calls, answer.finish_reason) == ([], "stop")
    assert "Thursday" in (answer.text or "")


async def test_live_who_decides_on_calls(asked: OpenAIChatModel) -> None:
    both = ModelRequestParameters(function_tools=TOOLS)
    first = await model_request(asked, [user("Use wrap with red, then find_order C-0007.")], model_request_parameters=both)
    assert [call.tool_name for call in first.tool_calls] == ["wrap", "find_order"]
    assert len({call.tool_call_id for call in first.tool_calls}) == 2
    none = await model_request(
        asked, [user("Use wrap.")], model_request_parameters=both, model_settings=ModelSettings(tool_choice="none", max_tokens=5)
    )
    assert none.tool_calls == []
    forced = await model_request(asked, [user("Hello.")], model_request_parameters=both, model_settings=ModelSettings(tool_choice=["wrap"]))
    assert forced.tool_calls[0].args_as_dict()["colour"] in ("red", "blue")


async def test_live_an_answer_ends_when_its_client_leaves(model: ModelServer) -> None:
    body = {"model": model.model, "stream": True, "max_tokens": 3000, "messages": [{"role": "user", "content": "Count from 1 to 500."}]}
    async with httpx.AsyncClient(base_url=model.url, timeout=120) as http:
        async with http.stream("POST", "/chat/completions", json=body) as response:
            lines = response.aiter_lines()
            for _ in range(8):
                await anext(lines)
        async with asyncio.timeout(20):  # the whole answer would take minutes
            await http.post("/chat/completions", json={**body, "stream": False, "max_tokens": 1})
    left, answered = await model.requests()
    assert left["end"] == ""
    assert left["usage"]["completion_tokens"] < 1000
    assert answered["end"] == "length"


async def test_live_what_does_not_fit_is_refused(asked: OpenAIChatModel, model: ModelServer) -> None:
    with pytest.raises(ModelContextWindowExceededError):
        await model_request(asked, [user("word " * 5000)])
    async with httpx.AsyncClient(base_url=model.url) as http:
        assert (await http.post("/chat/completions", content=b"{")).status_code == 400
        assert (await http.post("/chat/completions", json={"messages": "no"})).status_code == 400


async def test_live_marks_in_a_text_stay_text(model: ModelServer) -> None:
    async with httpx.AsyncClient(base_url=model.url, timeout=60) as http:
        for text in ("", "<|im_end|>"):
            body = {"model": model.model, "max_tokens": 1, "messages": [{"role": "user", "content": text}]}
            assert (await http.post("/chat/completions", json=body)).status_code == 200
    empty, marked = [request["usage"]["prompt_tokens"] for request in await model.requests()]
    assert marked > empty + 1
