"""What an author writes: a profile and the host tools that it names."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from pydantic_ai.toolsets import AbstractToolset

ServerTool: TypeAlias = "Callable[..., Any] | AbstractToolset[Any]"
"""A plain (async) function with type hints and a docstring, or any pydantic-ai toolset."""

BUDGET_KEYS = ("max_input_tokens", "max_output_tokens", "max_total_tokens", "max_requests", "max_cost_usd")


@dataclass(frozen=True, eq=False)
class HostTool:
    """Something that the host application does when the model asks for it.

    `parameters` is a JSON schema of type `object`; arguments that don't fit it go back to the model before the host sees them.
    `deadline_seconds` after being asked the call becomes `unknown` and the model goes on knowing that; `remind_seconds` after
    being asked a reminder event is sent. None: never.
    """

    name: str
    description: str
    parameters: Mapping[str, Any]
    deadline_seconds: float | None = None
    remind_seconds: float | None = None


@dataclass(frozen=True, eq=False)
class Profile:
    """An assistant: what it is told, what it may do, and its limits.

    `name` is 1 to 64 of `A-Za-z0-9._-`. `model`, `max_steps` (model requests a turn) and `budget` (of `max_input_tokens`,
    `max_output_tokens`, `max_total_tokens`, `max_requests`, `max_cost_usd`, per turn): None leaves them to the settings.
    `handover`: host calls of one response are shown one at a time, or all at once. Mistakes are reported when profiles are
    loaded, not here.
    """

    name: str
    instructions: str
    model: str | None = None
    tools: Sequence[ServerTool] = ()
    host_tools: Sequence[HostTool] = ()
    max_steps: int | None = None
    budget: Mapping[str, float] | None = None
    memory: Literal["off", "on"] = "off"
    handover: Literal["one", "all"] = "one"
