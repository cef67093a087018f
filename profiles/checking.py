"""Everything that an author can get wrong, as one clear line that names the profile and the tool."""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from profiles.definition import BUDGET_KEYS, HostTool, Profile
from profiles.functions import function_problem, options_of
from profiles.schemas import TOOL_NAME, schema_problem
from workflows.contracts.errors import SetupError
from workflows.contracts.horizon import LONGEST_SECONDS

_PROFILE_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_profile(profile: Profile) -> None:
    """Raises SetupError, in one line, for the first mistake in a profile."""
    for what, problem in _problems(profile):
        place = f"profile {profile.name!r}" + (f", {what}" if what else "")
        raise SetupError(" ".join(f"{place}: {problem}".split()))


def _problems(profile: Profile) -> Iterator[tuple[str, str]]:
    """Pairs of the tool (empty: the profile itself) and what is wrong with it."""
    yield from (("", problem) for problem in _own_problems(profile))
    names: list[str] = []
    for target in _listed(profile.tools):
        yield from _server_tool_problems(target)
        names += _names(target)
    for host_tool in _listed(profile.host_tools):
        yield from _host_tool_problems(host_tool)
        names.append(getattr(host_tool, "name", ""))
    for name, times in Counter(names).items():
        if times > 1:
            yield f"tool {name!r}", "two tools have this name"


def _own_problems(profile: Any) -> Iterator[str]:
    if not isinstance(profile.name, str) or not _PROFILE_NAME.fullmatch(profile.name):
        yield "a profile's name is 1 to 64 of A-Z a-z 0-9 . _ -"
    if not isinstance(profile.instructions, str):
        yield "instructions are text"
    if profile.model is not None and not (isinstance(profile.model, str) and profile.model):
        yield "model is a model's name or None"
    for name, value in (("tools", profile.tools), ("host_tools", profile.host_tools)):
        if not isinstance(value, list | tuple):
            yield f"{name} is a list"
    if profile.max_steps is not None and not _is_count(profile.max_steps):
        yield "max_steps is a whole number from 1"
    if profile.memory not in ("off", "on"):
        yield "memory is 'off' or 'on'"
    if profile.handover not in ("one", "all"):
        yield "handover is 'one' or 'all'"
    yield from _budget_problems(profile.budget)


def _budget_problems(budget: Any) -> Iterator[str]:
    if budget is None:
        return
    if not isinstance(budget, Mapping):
        yield f"budget is a mapping with some of {', '.join(BUDGET_KEYS)}"
        return
    for key, value in budget.items():
        if key not in BUDGET_KEYS:
            yield f"budget has no {key!r}; it knows {', '.join(BUDGET_KEYS)}"
        if not _is_positive(value):
            yield f"budget {key!r} is a number above 0"


def _server_tool_problems(target: Any) -> Iterator[tuple[str, str]]:
    what = f"tool {getattr(target, '__name__', None) or type(target).__name__!r}"
    if isinstance(target, FunctionToolset):
        yield from (
            (f"tool {name!r}", "asks for approval; make it a HostTool") for name, one in target.tools.items() if one.requires_approval
        )
    elif not isinstance(target, AbstractToolset) and (problem := function_problem(target)) is not None:
        yield what, problem
    for name in _names(target):
        if not _is_tool_name(name):
            yield f"tool {name!r}", "a tool's name is 1 to 64 of A-Z a-z 0-9 _ -"
    options = options_of(target)
    if not _is_positive(options.timeout_seconds):
        yield what, f"timeout_seconds is a number above 0, not {options.timeout_seconds!r}"
    if not _is_count(options.attempts):
        yield what, f"attempts is a whole number from 1, not {options.attempts!r}"


def _host_tool_problems(tool: Any) -> Iterator[tuple[str, str]]:
    if not isinstance(tool, HostTool):
        yield f"host tool {getattr(tool, '__name__', tool)!r}", "is not a HostTool"
        return
    what = f"host tool {tool.name!r}"
    if not _is_tool_name(tool.name):
        yield what, "a tool's name is 1 to 64 of A-Z a-z 0-9 _ -"
    if not _is_text(tool.description):
        yield what, "its description is text"
    if (problem := schema_problem(tool.parameters)) is not None:
        yield what, problem
    for name in ("deadline_seconds", "remind_seconds"):
        seconds = getattr(tool, name)
        if seconds is not None and not _is_positive(seconds):
            yield what, f"{name} is a number above 0 or None, not {seconds!r}"
        elif seconds is not None and seconds > LONGEST_SECONDS:
            yield what, f"{name} is at most {LONGEST_SECONDS}, a hundred years, not {seconds!r}"


def _names(target: Any) -> list[str]:
    """The tools that are known without asking a server."""
    if isinstance(target, FunctionToolset):
        return list(target.tools)
    if isinstance(target, AbstractToolset):
        return []
    return [getattr(target, "__name__", type(target).__name__)]


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else []


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_tool_name(value: Any) -> bool:
    return isinstance(value, str) and TOOL_NAME.fullmatch(value) is not None


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value > 0
