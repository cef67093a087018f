"""architecture.md, Profiles: what an author can get wrong is one clear line that names the profile and the tool."""

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai import RunContext
from pydantic_ai.toolsets import FunctionToolset

from profiles import HostTool, Profile, ToolContext, tool
from profiles.checking import check_profile
from profiles.functions import ToolOptions, as_tool, options_of
from profiles.schemas import argument_problems, schema_problem
from workflows.contracts.errors import SetupError

OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}


def fine(a: int, ctx: ToolContext, b: str = "x") -> str:
    """Does nothing.

    :param a: a number
    """
    return f"{a}{b}{ctx.call_id}"


def without_hint(a) -> str:  # type: ignore[no-untyped-def]
    return str(a)


def other_ctx(ctx: int) -> str:
    return str(ctx)


def context_elsewhere(who: ToolContext) -> str:
    return who.tenant


def run_context(run: RunContext[int]) -> str:
    return str(run)


def starred(*values: int) -> str:
    return str(values)


def by_position(a: int, /) -> str:
    return str(a)


def yields(a: int) -> Any:
    yield a


def unresolved(a: "Nowhere") -> str:  # type: ignore[name-defined] # noqa: F821
    return str(a)


def no_schema(a: Callable[[], Any]) -> str:
    return str(a)


def plain(a: int) -> int:
    return a


def fresh() -> Callable[[], int]:
    """A function that no other test has marked."""

    def made() -> int:
        return 1

    return made


def named(*tools: Any, host: tuple[Any, ...] = (), **more: Any) -> Profile:
    return Profile(name="p", instructions="i", tools=list(tools), host_tools=list(host), **more)


def host(name: str = "h", parameters: Any = OBJECT, **more: Any) -> HostTool:
    return HostTool(name, "does", parameters, **more)


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        (named(without_hint), ("'without_hint'", "no type hint for 'a'")),
        (named(other_ctx), ("'other_ctx'", "ToolContext")),
        (named(context_elsewhere), ("'context_elsewhere'", "name that parameter 'ctx'")),
        (named(run_context), ("'run_context'", "RunContext")),
        (named(starred), ("'starred'", "*values")),
        (named(by_position), ("'by_position'", "position")),
        (named(yields), ("'yields'", "yields")),
        (named(unresolved), ("'unresolved'", "can't be resolved")),
        (named(no_schema), ("'no_schema'", "schema")),
        (named(42), ("'int'", "neither a function nor")),
        (named(fine, fine), ("'fine'", "two tools")),
        (named(fine, host=(host("fine"),)), ("'fine'", "two tools")),
        (named(FunctionToolset([plain]), plain), ("'plain'", "two tools")),
        (named(FunctionToolset([plain], requires_approval=True)), ("'plain'", "HostTool")),
        (named(tool(timeout_seconds=-1)(fresh())), ("'made'", "timeout_seconds", "-1")),
        (named(tool(attempts=0)(fresh())), ("'made'", "attempts", "0")),
        (named(host=(host(parameters={"type": "string"}),)), ("'h'", "type 'object'")),
        (named(host=(host(parameters={"type": "object", "properties": 3}),)), ("'h'", "properties")),
        (named(host=(host(parameters=[]),)), ("'h'", "JSON schema")),
        (named(host=(host(deadline_seconds=-5),)), ("'h'", "deadline_seconds")),
        (named(host=(host(remind_seconds=1e300),)), ("'h'", "remind_seconds", "a hundred years")),
        (named(host=(host(remind_seconds=float("nan")),)), ("'h'", "remind_seconds")),
        (named(host=(host("bad name"),)), ("'bad name'", "A-Z")),
        (named(host=(fine,)), ("'fine'", "not a HostTool")),
        (named(max_steps=0), ("max_steps",)),
        (named(budget={"max_tokens": 5}), ("'max_tokens'", "max_total_tokens")),
        (named(budget={"max_requests": 0}), ("'max_requests'",)),
        (named(memory="maybe"), ("memory",)),
        (named(handover="both"), ("handover",)),
        (Profile(name="a b", instructions="i"), ("'a b'", "A-Z")),
        (Profile(name="p", instructions=3), ("instructions",)),  # type: ignore[arg-type]
    ],
)
def test_profiles_a_mistake_is_one_line_with_its_place(profile: Profile, words: tuple[str, ...]) -> None:
    with pytest.raises(SetupError) as raised:
        check_profile(profile)
    line = str(raised.value)
    assert "\n" not in line
    assert f"profile {profile.name!r}" in line
    assert all(word in line for word in words), line


def test_profiles_what_fits_passes() -> None:
    check_profile(
        named(fine, host=(host(), host("empty", {}), host("late", deadline_seconds=0.5)), budget={"max_cost_usd": 0.1}, max_steps=3)
    )


def test_profiles_ctx_is_not_in_the_schema_wherever_it_stands() -> None:
    schema = as_tool(fine).tool_def.parameters_json_schema
    assert list(schema["properties"]) == ["a", "b"]
    assert schema["properties"]["a"] == {"type": "integer", "description": "a number"}
    assert schema["required"] == ["a"]


def test_profiles_options_of_a_tool_have_the_documented_defaults() -> None:
    assert options_of(fine) == ToolOptions(30.0, 1, False)
    assert options_of(tool(fresh())) == ToolOptions(30.0, 1, False)
    assert options_of(tool(timeout_seconds=2, attempts=3, idempotent=True)(fresh())) == ToolOptions(2, 3, True)
    toolset = tool(timeout_seconds=5)(FunctionToolset([plain]))
    assert options_of(toolset).timeout_seconds == 5


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": {"$ref": "http://127.0.0.1:9/x.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}},
        {"type": "object", "properties": {"a": {"pattern": "("}}},
        {"type": "object", "patternProperties": {"(": {}}},
    ],
)
def test_profiles_schemas_refer_to_nothing_outside_and_to_nothing_missing(schema: dict[str, Any]) -> None:
    assert schema_problem(schema) is not None


def test_profiles_a_schema_that_never_ends_is_answered() -> None:
    assert "can't be checked" in argument_problems({"type": "object", "$ref": "#"}, {})[0]


def test_profiles_a_reference_inside_the_schema_works() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    assert schema_problem(schema) is None
    assert argument_problems(schema, {"a": 1}) == []
    assert argument_problems(schema, {"a": "x"}) == ["$.a: 'x' is not of type 'integer'"]
