"""Tools: what the model is offered, which arguments pass, and what a run comes to."""

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import BinaryContent, ModelRetry, RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from activities.llm.tools import CallOptions, Toolbox
from profiles import HostTool, Profile, ToolContext, tool
from workflows.contracts.errors import SetupError, TurnFault

CTX = ToolContext("acme", "ann", "s1", "c1")
COUNT = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}


@tool(timeout_seconds=0.02, attempts=2, idempotent=True)
async def sleeps(seconds: float) -> str:
    """Sleeps."""
    await asyncio.sleep(seconds)
    return "awake"


LET_GO = threading.Event()


@pytest.fixture(autouse=True)
def nothing_stays_blocked() -> Iterator[None]:
    LET_GO.clear()
    yield
    LET_GO.set()


@tool(timeout_seconds=0.02)
def blocks() -> None:
    LET_GO.wait(60)


async def naps() -> str:
    await asyncio.sleep(0)
    return "awake"


def who(n: int, ctx: ToolContext) -> dict[str, Any]:
    return {"n": n, "call": ctx.call_id, "who": ctx.principal}


async def later(ctx: ToolContext, n: int) -> str:
    return f"{ctx.tenant}{n}"


def raises(text: str) -> str:
    raise KeyError(text)


def times_out() -> str:
    raise TimeoutError("the other side")


def asks_again() -> str:
    raise ModelRetry("try a smaller one")


def returns(what: str) -> Any:
    loop: list[Any] = []
    loop.append(loop)
    values: dict[str, Any] = {
        "binary": [BinaryContent(data=b"123", media_type="image/png"), b"\xff"],
        "numbers": [float("nan"), float("inf"), 1.5, Decimal("1.10")],
        "texts": ["\ud800", "a\x00b", date(2026, 1, 2), {"k\ud800": None, 3: (1, 2)}],
        "none": None,
        "loop": loop,
        "big": "x" * 200_000,
    }
    return values[what]


def toolbox(*tools: Any, host: tuple[HostTool, ...] = (), actions: list[dict[str, Any]] | None = None) -> Toolbox:
    return Toolbox(Profile(name="p", instructions="", tools=tools, host_tools=host), actions or [])


ALL = (sleeps, blocks, naps, who, later, raises, times_out, asks_again, returns)
HOST = (HostTool("count", "Counts.", COUNT, deadline_seconds=60, remind_seconds=5),)


async def test_r129_offered_are_server_tools_host_tools_and_declared_actions() -> None:
    actions: list[dict[str, Any]] = [{"name": "file_form", "description": "Files.", "parameters": COUNT}, {"name": "plain"}]
    definitions = await toolbox(who, host=HOST, actions=actions).definitions()
    assert [(one.name, one.kind) for one in definitions] == [
        ("who", "function"),
        ("count", "external"),
        ("file_form", "external"),
        ("plain", "external"),
    ]
    assert "ctx" not in definitions[0].parameters_json_schema["properties"]


async def test_r129_a_declared_action_never_takes_a_server_tools_name_but_may_renew_a_host_tool() -> None:
    box = toolbox(who, host=HOST, actions=[{"name": "who", "parameters": COUNT}, {"name": "count", "description": "New."}])
    assert [(one.name, one.description) for one in await box.definitions()] == [("who", None), ("count", "New.")]
    assert (await box.options("who")).category == "server"


@pytest.mark.parametrize(
    "action",
    [
        {"name": "a b"},
        {"name": None},
        {},
        {"name": "a", "parameters": {"type": "string"}},
        {"name": "a", "parameters": {"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:9/"}}}},
    ],
)
async def test_r129_an_action_that_does_not_fit_is_left_out(action: dict[str, Any]) -> None:
    assert await toolbox(actions=[action]).definitions() == []


async def test_r129_at_most_32_actions_are_offered() -> None:
    assert len(await toolbox(actions=[{"name": f"a{n}"} for n in range(40)]).definitions()) == 32


async def test_two_toolsets_with_one_name_are_a_setup_error() -> None:
    with pytest.raises(SetupError, match="'who'"):
        await toolbox(who, FunctionToolset([plain_who()])).definitions()


class Remote(AbstractToolset[Any]):
    """A toolset whose tools take any object, as those of a remote server do; `down` it answers nothing."""

    def __init__(self, down: bool = False) -> None:
        self.down = down

    @property
    def id(self) -> str:
        return "remote"

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        if self.down:
            raise ConnectionError("refused")
        definition = ToolDefinition(name="far", parameters_json_schema=COUNT)
        return {
            "far": ToolsetTool(toolset=self, tool_def=definition, max_retries=0, args_validator=SchemaValidator(core_schema.dict_schema()))
        }

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]) -> Any:
        return {"args": tool_args, "call": ctx.tool_call_id}


async def test_a_remote_tools_arguments_are_checked_by_its_schema() -> None:
    box = toolbox(Remote())
    assert (await box.check(ToolCallPart("far", '{"n":1}', "c1"))).problem is None
    assert (await box.check(ToolCallPart("far", '{"n":"x"}', "c1"))).problem == "$.n: 'x' is not of type 'integer'"
    assert json.loads((await box.run("far", '{"n":1}', CTX)).output_json) == {"args": {"n": 1}, "call": "c1"}


async def test_a_toolset_that_is_down_ends_the_turn_and_fails_the_call() -> None:
    with pytest.raises(TurnFault, match="refused") as raised:
        await toolbox(Remote(down=True)).definitions()
    assert raised.value.error.type == "setup_error"
    ran = await toolbox(Remote(down=True)).run("far", "{}", CTX)
    assert ran.outcome == "failed"
    assert "was not run" in ran.output_json


def plain_who() -> Any:
    def who(n: int) -> int:
        return n

    return who


async def test_options_come_from_where_the_tool_was_declared() -> None:
    box = toolbox(*ALL, host=HOST, actions=[{"name": "act", "deadline_seconds": 3}])
    assert await box.options("sleeps") == CallOptions("server", 0.02, 2, True)
    assert await box.options("count") == CallOptions("host", deadline_seconds=60, remind_seconds=5)
    assert await box.options("act") == CallOptions("host", deadline_seconds=3)
    assert await box.options("nobody") == CallOptions("server")


@pytest.mark.parametrize(
    ("name", "args", "problem"),
    [
        ("who", '{"n":1}', None),
        ("who", {"n": "6"}, None),
        ("who", '{"n":"x"}', "n: "),
        ("who", '{"n":1,"ctx":2}', "ctx: "),
        ("who", '{"n":', "not JSON"),
        ("count", '{"n":1}', None),
        ("count", '{"n":"1"}', "$.n: "),
        ("count", '{"n":1,"m":2}', "'m' was unexpected"),
        ("count", "[1]", "not of type 'object'"),
        ("count", '{"n":NaN}', "not JSON"),
        ("count", "", "'n' is a required property"),
        ("nobody", "{}", "no tool 'nobody'"),
    ],
)
async def test_arguments_are_checked_before_anybody_sees_them(name: str, args: Any, problem: str | None) -> None:
    checked = await toolbox(*ALL, host=HOST).check(ToolCallPart(name, args, "c1"))
    json.loads(checked.arguments)
    if problem is None:
        assert checked.problem is None
    else:
        assert checked.problem is not None
        assert problem in checked.problem


@pytest.mark.parametrize(
    ("name", "args", "outcome", "text"),
    [
        ("naps", "{}", "success", "awake"),
        ("sleeps", '{"seconds":60}', "failed", "within 0.02 s; whether it had an effect is unknown"),
        ("blocks", "{}", "failed", "within 0.02 s; whether it had an effect is unknown"),
        ("who", '{"n":2}', "success", "'call': 'c1', 'who': 'ann'"),
        ("later", '{"n":2}', "success", "acme2"),
        ("raises", '{"text":"gone"}', "failed", "KeyError: 'gone'"),
        ("times_out", "{}", "failed", "TimeoutError: the other side"),
        ("asks_again", "{}", "retried", "try a smaller one"),
        ("who", '{"n":"x"}', "retried", "n: "),
        ("nobody", "{}", "failed", "no server tool"),
        ("count", '{"n":1}', "failed", "no server tool"),
        ("returns", '{"what":"binary"}', "success", "['[image/png, 3 bytes, not kept]', '[binary, 1 bytes, not kept]']"),
        ("returns", '{"what":"numbers"}', "success", "[None, None, 1.5, '1.10']"),
        ("returns", '{"what":"none"}', "success", "None"),
        ("returns", '{"what":"loop"}', "failed", "can't be written as JSON"),
    ],
)
async def test_a_run_is_always_an_outcome(name: str, args: str, outcome: str, text: str) -> None:
    ran = await toolbox(*ALL, host=HOST).run(name, args, CTX)
    assert ran.outcome == outcome
    assert text in str(json.loads(ran.output_json))
    assert "Traceback" not in ran.output_json


async def test_outputs_are_kept_whole_and_well_formed() -> None:
    big = await toolbox(*ALL).run("returns", '{"what":"big"}', CTX)
    assert len(json.loads(big.output_json)) == 200_000
    texts = await toolbox(*ALL).run("returns", '{"what":"texts"}', CTX)
    assert json.loads(texts.output_json) == ["\ufffd", "a\x00b", "2026-01-02", {"k\ufffd": None, "3": [1, 2]}]
    assert "\x00" not in texts.output_json


async def test_r95_a_cancelled_run_is_cancelled() -> None:
    async def waits() -> None:
        await asyncio.sleep(60)

    task = asyncio.create_task(toolbox(tool(timeout_seconds=90)(waits)).run("waits", "{}", CTX))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
