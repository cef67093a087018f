"""Plain functions as tools: how an author marks them, and how pydantic-ai gets to call them."""

import inspect
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, overload

if TYPE_CHECKING:
    from pydantic_ai import Tool

CONTEXT = "ctx"
"""The parameter that gets a ToolContext. It is not in the schema that the model sees."""

_MARK = "__outlast_tool__"
_T = TypeVar("_T")


@dataclass(frozen=True)
class ToolContext:
    """Who a tool runs for. `call_id` stays the same when a call is run again: use it as the key of anything that must happen once."""

    tenant: str
    principal: str
    session_id: str
    call_id: str


@dataclass(frozen=True)
class ToolOptions:
    """How a tool's activity runs: seconds one attempt may take, how many attempts, and whether a second one is harmless."""

    timeout_seconds: float = 30.0
    attempts: int = 1
    idempotent: bool = False


@overload
def tool(target: _T, /) -> _T: ...
@overload
def tool(*, timeout_seconds: float = 30.0, attempts: int = 1, idempotent: bool = False) -> Callable[[_T], _T]: ...
def tool(target: Any = None, /, *, timeout_seconds: float = 30.0, attempts: int = 1, idempotent: bool = False) -> Any:
    """Sets how a function runs as a tool, or every tool of a toolset: `tool(timeout_seconds=60)(MCPToolset(…))`.

    `timeout_seconds` bounds one attempt. `attempts` above 1 runs a call again that raised. `idempotent` allows it to be run
    again, with the same call id, when its worker died in the middle; without it such a call is recorded as `unknown`.
    """

    def mark(marked: _T) -> _T:
        setattr(marked, _MARK, ToolOptions(timeout_seconds, attempts, idempotent))
        return marked

    return mark if target is None else mark(target)


def options_of(target: Any) -> ToolOptions:
    """What `@tool` set on a function or toolset, or the defaults."""
    options = getattr(target, _MARK, None)
    return options if isinstance(options, ToolOptions) else ToolOptions()


def function_problem(function: Any) -> str | None:
    """Why a function can't be a tool, in words for its author; None if it can."""
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        return "is neither a function nor a pydantic-ai toolset"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        return "yields; a tool returns its result"
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except Exception as error:
        return f"has a type hint that can't be resolved ({error})"
    for name, parameter in inspect.signature(function).parameters.items():
        if (problem := _parameter_problem(name, parameter, hints.get(name))) is not None:
            return problem
    try:
        as_tool(function)
    except Exception as error:
        return f"has parameters that make no schema ({_first_line(error)})"
    return None


def _parameter_problem(name: str, parameter: inspect.Parameter, hint: Any) -> str | None:
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        return f"takes *{name}; every parameter of a tool has a name of its own"
    if parameter.kind is parameter.POSITIONAL_ONLY:
        return f"takes {name!r} by position only; tools are called by name"
    if name == CONTEXT:
        return None if hint in (None, ToolContext) else "has a parameter 'ctx' that is not a ToolContext; rename it or hint it so"
    if hint is ToolContext:
        return f"takes its ToolContext as {name!r}; name that parameter 'ctx'"
    if getattr(typing.get_origin(hint) or hint, "__name__", "") == "RunContext":
        return f"takes a RunContext as {name!r}; take `ctx: ToolContext` instead"
    return f"has no type hint for {name!r}" if hint is None else None


def as_tool(function: Callable[..., Any]) -> "Tool[ToolContext]":
    """The function as a pydantic-ai tool whose dependencies are the ToolContext. Raises what pydantic raises for hints without a schema."""
    from pydantic_ai import Tool

    return Tool(_adapted(function))


def _adapted(function: Callable[..., Any]) -> Callable[..., Any]:
    """pydantic-ai leaves only a *first* parameter hinted RunContext out of the schema, so `ctx`, wherever it stands, is moved there."""
    from pydantic_ai import RunContext

    signature = inspect.signature(function)
    if CONTEXT not in signature.parameters:
        return function
    adapter: Any
    if inspect.iscoroutinefunction(function):

        async def awaiting(run_ctx: Any, **arguments: Any) -> Any:
            return await function(**arguments, ctx=run_ctx.deps)

        adapter = awaiting
    else:

        def calling(run_ctx: Any, **arguments: Any) -> Any:
            return function(**arguments, ctx=run_ctx.deps)

        adapter = calling
    hints = typing.get_type_hints(function, include_extras=True)
    first = inspect.Parameter("run_ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=RunContext[ToolContext])
    adapter.__name__, adapter.__qualname__ = function.__name__, function.__qualname__
    adapter.__module__, adapter.__doc__ = function.__module__, function.__doc__
    rest = [parameter for name, parameter in signature.parameters.items() if name != CONTEXT]
    adapter.__signature__ = signature.replace(parameters=[first, *rest])
    adapter.__annotations__ = {"run_ctx": RunContext[ToolContext]} | {k: v for k, v in hints.items() if k != CONTEXT}
    return typing.cast("Callable[..., Any]", adapter)


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0]
