"""What a model may call: schemas, the check of arguments, and one run of a server tool."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from pydantic import ValidationError
from pydantic_ai import RunContext
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool
from pydantic_ai.usage import RunUsage

from activities.llm.demo import DemoModel
from activities.llm.output import to_output
from activities.llm.text import well_formed
from profiles import HostTool, Profile, ToolContext
from profiles.definition import ServerTool
from profiles.functions import ToolOptions, as_tool, options_of
from profiles.schemas import TOOL_NAME, argument_problems, object_schema, schema_problem
from workflows.contracts.errors import SetupError, TurnFault
from workflows.contracts.horizon import LONGEST_SECONDS
from workflows.model.call import Category
from workflows.model.turn import TurnError

_log = logging.getLogger(__name__)

MOST_ACTIONS = 32
"""Actions that one host context may declare."""

_NOBODY = ToolContext(tenant="", principal="", session_id="", call_id="")
_UNKNOWN_EFFECT = "whether it had an effect is unknown"
_MCP_CODES_WITHOUT_ANSWER = (-32000, -32001)
"""Connection closed, request timed out: the server may have done it."""


@dataclass(frozen=True)
class CallOptions:
    """How a call is run (server) or waited for (host). Durations in seconds."""

    category: Category
    timeout_seconds: float = 30.0
    attempts: int = 1
    idempotent: bool = False
    deadline_seconds: float | None = None
    remind_seconds: float | None = None


@dataclass(frozen=True)
class Checked:
    """A call and whether it may be made. `arguments` is valid JSON text in any case. `problem` given: it goes back to the model as a retry."""

    call_id: str
    tool_name: str
    arguments: str
    options: CallOptions
    problem: str | None = None


@dataclass(frozen=True)
class ToolOutcome:
    """What a run came to. `output_json` is the value that was returned, whole, or the text of the problem."""

    output_json: str
    outcome: Literal["success", "failed", "retried"] = "success"


class Toolbox:
    """The tools of one profile and one request. A host's declared action replaces a host tool of its name; a server tool's name is never given away."""

    def __init__(self, profile: Profile, actions: Sequence[Mapping[str, Any]] = ()) -> None:
        self._profile = profile
        self._host = {tool.name: tool for tool in (*profile.host_tools, *_declared(actions))}
        self._server: dict[str, tuple[ToolsetTool[Any], ToolOptions]] | None = None

    async def definitions(self) -> list[ToolDefinition]:
        """What the model is offered: server tools, then host tools. Raises SetupError if two toolsets share a name, TurnFault if one can't be asked."""
        server = await self._server_tools()
        host = [
            ToolDefinition(
                name=tool.name, description=tool.description, parameters_json_schema=object_schema(tool.parameters), kind="external"
            )
            for name, tool in self._host.items()
            if name not in server
        ]
        return [tool.tool_def for tool, _ in server.values()] + host

    async def options(self, tool_name: str) -> CallOptions:
        """How calls of a tool are run or waited for. A tool that there is not counts as a server tool."""
        server = await self._server_tools()
        if tool_name in server:
            options = server[tool_name][1]
            return CallOptions("server", options.timeout_seconds, options.attempts, options.idempotent)
        if (tool := self._host.get(tool_name)) is not None:
            return CallOptions("host", deadline_seconds=tool.deadline_seconds, remind_seconds=tool.remind_seconds)
        return CallOptions("server")

    async def check(self, call: ToolCallPart) -> Checked:
        """Whether a call's tool exists and its arguments fit."""
        raw = raw_arguments(call)
        options = await self.options(call.tool_name)
        try:
            arguments = parsed(raw)
        except (ValueError, RecursionError) as error:
            return Checked(call.tool_call_id, call.tool_name, stored_arguments(call), options, f"The arguments are not JSON: {error}.")
        problem = await self._argument_problem(call.tool_name, raw, arguments)
        return Checked(call.tool_call_id, call.tool_name, raw, options, problem)

    async def run(self, tool_name: str, arguments_json: str, ctx: ToolContext) -> ToolOutcome:
        """Runs a server tool once. Whatever it raises is an outcome; only cancellation passes through."""
        try:
            server = await self._server_tools()
        except (SetupError, TurnFault) as error:
            return _problem(f"{tool_name} was not run: {error}", "failed")
        if tool_name not in server:
            return _problem(f"There is no server tool {tool_name!r}.", "failed")
        tool, options = server[tool_name]
        limit = asyncio.timeout(options.timeout_seconds)
        try:
            arguments = tool.args_validator.validate_json(arguments_json)
            async with limit:
                value = await tool.toolset.call_tool(tool_name, arguments, _context(ctx, tool_name), tool)
        except Exception as error:
            outcome = _raised(error)
            if limit.expired() or outcome.outcome == "failed":
                _log.warning("a server tool failed", exc_info=error)
            if limit.expired():
                return _problem(f"{tool_name} did not return within {options.timeout_seconds:g} s; {_UNKNOWN_EFFECT}.", "failed")
            return outcome
        return _returned(value)

    async def _argument_problem(self, tool_name: str, raw: str, arguments: Any) -> str | None:
        server = await self._server_tools()
        if tool_name in server:
            return _server_problem(server[tool_name][0], raw, arguments)
        if (tool := self._host.get(tool_name)) is not None:
            return "; ".join(argument_problems(tool.parameters, arguments)) or None
        known = ", ".join(dict.fromkeys([*server, *self._host])) or "none"
        return f"There is no tool {tool_name!r}. There are: {known}."

    async def _server_tools(self) -> dict[str, tuple[ToolsetTool[Any], ToolOptions]]:
        if self._server is None:
            found: dict[str, tuple[ToolsetTool[Any], ToolOptions]] = {}
            for toolset, options in _toolsets(self._profile):
                for name, tool in (await self._tools_of(toolset)).items():
                    if name in found:
                        raise SetupError(f"profile {self._profile.name!r}, tool {name!r}: two tools have this name")
                    if tool.tool_def.kind != "function":
                        raise SetupError(f"profile {self._profile.name!r}, tool {name!r}: is not run here; make it a HostTool")
                    found[name] = (tool, options)
            self._server = found
        return self._server

    async def _tools_of(self, toolset: AbstractToolset[Any]) -> dict[str, ToolsetTool[Any]]:
        """Toolsets are never entered: one that talks to a server connects by itself, and again after the server died."""
        try:
            return await toolset.get_tools(_context(_NOBODY))
        except Exception as error:
            problem = f"profile {self._profile.name!r}: {toolset.label} does not say which tools it has ({type(error).__name__}: {error})"
            raise TurnFault(TurnError.of("setup_error", " ".join(problem.split()))) from error


@lru_cache(maxsize=256)
def _toolsets(profile: Profile) -> tuple[tuple[AbstractToolset[Any], ToolOptions], ...]:
    """Schemas of plain functions are built once per profile."""
    return tuple((_toolset(target), options_of(target)) for target in profile.tools)


def _toolset(target: ServerTool) -> AbstractToolset[Any]:
    return target if isinstance(target, AbstractToolset) else FunctionToolset([as_tool(target)])


def _context(ctx: ToolContext, tool_name: str | None = None) -> RunContext[ToolContext]:
    """Tools see the ToolContext as their dependencies. Neither model nor usage of a request is theirs to see."""
    return RunContext(deps=ctx, model=_MODEL, usage=RunUsage(), tool_call_id=ctx.call_id, tool_name=tool_name)


_MODEL = DemoModel()


def _declared(actions: Sequence[Mapping[str, Any]]) -> list[HostTool]:
    """A request's actions as host tools. The api refuses those that don't fit; what comes in otherwise is left out, not fatal."""
    tools = []
    for action in actions[:MOST_ACTIONS]:
        name, parameters = action.get("name"), action.get("parameters") or {}
        if not isinstance(name, str) or not TOOL_NAME.fullmatch(name) or schema_problem(parameters) is not None:
            _log.warning("a declared action is left out: its name or its parameters don't fit")
            continue
        deadline, remind = _wait(action.get("deadline_seconds")), _wait(action.get("remind_seconds"))
        tools.append(HostTool(name, str(action.get("description") or ""), parameters, deadline, remind))
    return tools


def _wait(seconds: Any) -> float | None:
    fits = isinstance(seconds, int | float) and not isinstance(seconds, bool) and 0 < seconds <= LONGEST_SECONDS
    return float(seconds) if fits else None


def _server_problem(tool: ToolsetTool[Any], raw: str, arguments: Any) -> str | None:
    try:
        tool.args_validator.validate_json(raw)
    except ValidationError as error:
        return _validation_text(error)
    if isinstance(tool.toolset, FunctionToolset):
        return None
    # Validators of remote tools take any object; their schema is all there is.
    return "; ".join(argument_problems(tool.tool_def.parameters_json_schema, arguments)) or None


def _returned(value: Any) -> ToolOutcome:
    try:
        return ToolOutcome(to_output(value))
    except Exception as error:
        return _problem(f"The result can't be written as JSON ({type(error).__name__}); {_UNKNOWN_EFFECT}.", "failed")


def _raised(error: Exception) -> ToolOutcome:
    match error:
        case ValidationError():
            return _problem(_validation_text(error), "retried")
        case ModelRetry():
            return _problem(error.message, "retried")
        case _:
            return _problem(_failure_text(error), "failed")


def too_large(tool_name: str, size: int, most: int) -> ToolOutcome:
    """What becomes of a result of more bytes than are kept. The tool has run, and whatever it did is done."""
    why = f"{tool_name} ran, but its result of {size:,} bytes is over the limit of {most:,} (OUTLAST_TOOL_RESULT_LIMIT_BYTES)"
    return _problem(f"{why} and was not kept. Ask for less at a time.", "failed")


def _problem(text: str, outcome: Literal["failed", "retried"]) -> ToolOutcome:
    return ToolOutcome(json.dumps(well_formed(text), ensure_ascii=False), outcome)


def _failure_text(error: Exception) -> str:
    if isinstance(error, ToolFailed):
        return error.message
    code = getattr(getattr(error, "error", None), "code", None)
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{words}; {_UNKNOWN_EFFECT}." if code in _MCP_CODES_WITHOUT_ANSWER else words


def _validation_text(error: ValidationError) -> str:
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    return "The arguments don't fit: " + "; ".join(f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg']}" for one in problems[:5])


def raw_arguments(call: ToolCallPart) -> str:
    """A call's arguments as the model wrote them."""
    return call.args or "{}" if isinstance(call.args, str) else call.args_as_json_str()


def stored_arguments(call: ToolCallPart) -> str:
    """A call's arguments as JSON text in any case: what is not JSON becomes a string that says it."""
    raw = raw_arguments(call)
    try:
        parsed(raw)
    except (ValueError, RecursionError):
        return json.dumps(well_formed(raw))
    return raw


def parsed(raw: str) -> Any:
    """Arguments as a value. Raises ValueError for what is not JSON, RecursionError for what is nested too deep."""
    return json.loads(raw, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
