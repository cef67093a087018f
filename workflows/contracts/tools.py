"""Server tools: one activity per call."""

from typing import Literal

from temporalio import activity

from workflows.model.base import Record
from workflows.model.call import OpenCall
from workflows.model.session import SessionRef
from workflows.model.turn import TurnRef


class RunTool(Record):
    """Runs one server call. Its arguments are in the call's row. `revision` is the session's if this result ends the turn.
    `spent_seconds` of the turn's time are used up.
    """

    session: SessionRef
    turn: TurnRef
    step: int
    call: OpenCall
    profile: str
    revision: int
    spent_seconds: float = 0.0


class SettleCall(RunTool):
    """Records a call that can't be run (again): its worker died in the middle, or it outlived its time."""

    status: Literal["unknown", "failed"] = "unknown"
    reason: str = ""


class ToolDone(Record):
    """What became of a call. `output` is JSON text, whole. `paused`: this was the last server result beside open host calls,
    and the turn is over. `recorded` is False if the call was cancelled before it returned; `out_of_time`: because the turn had
    lasted as long as it may. `duration_ms` is how long the tool ran, None if that is not known.
    """

    call_id: str
    output: str = ""
    outcome: Literal["success", "failed", "retried", "interrupted"] = "success"
    status: str | None = None
    recorded: bool = True
    paused: bool = False
    out_of_time: bool = False
    at: str = ""
    expires_at: str = ""
    seconds: float = 0.0
    duration_ms: int | None = None


@activity.defn
async def run_tool(call: RunTool) -> ToolDone:
    """Runs a server tool and commits its result."""
    raise NotImplementedError


@activity.defn
async def settle_call(call: SettleCall) -> ToolDone:
    """Commits the result of a call that nobody will run to its end."""
    raise NotImplementedError
