"""What a worker measures beside the SDK's own figures, in the same registry: steps, tokens and tool calls. No ids, no content."""

from temporalio import activity
from temporalio.common import MetricCounter, MetricHistogramFloat

from activities.observing import mark_failed
from workflows.contracts.steps import StepDone
from workflows.contracts.tools import ToolDone

STEPS = "outlast_steps"
STEP_SECONDS = "outlast_step_seconds"
TOKENS = "outlast_tokens"
TOOL_CALLS = "outlast_tool_calls"
TOOL_SECONDS = "outlast_tool_seconds"


def measure_step(done: StepDone) -> None:
    """Counts a model step by model and end, its time with all its attempts, and its tokens; a trace shows it failed if it did. Only within an activity."""
    model = {"model": done.model or "none"}
    error = done.error.type if done.error else "none"
    if done.state == "failed":
        mark_failed(error)
    _counter(STEPS, "Model steps that ended").add(1, {**model, "state": done.state, "error": error})
    _seconds(STEP_SECONDS, "Time from a step's beginning to its end").record(done.seconds, model)
    for direction, tokens in (("input", done.usage.input_tokens), ("output", done.usage.output_tokens)):
        _counter(TOKENS, "Tokens of model requests").add(tokens, {**model, "direction": direction})


def measure_tool(tool_name: str, done: ToolDone) -> None:
    """Counts a server tool's call by tool and outcome, and its time with all its attempts; a trace shows it failed if it did. Only within an activity."""
    tool = {"tool": tool_name}
    if done.outcome == "failed":
        mark_failed(done.outcome)
    _counter(TOOL_CALLS, "Calls of server tools that ended").add(1, {**tool, "outcome": done.outcome if done.recorded else "stopped"})
    _seconds(TOOL_SECONDS, "Time of a server tool's call").record(done.seconds, tool)


def _counter(name: str, description: str) -> MetricCounter:
    return activity.metric_meter().create_counter(name, description)


def _seconds(name: str, description: str) -> MetricHistogramFloat:
    return activity.metric_meter().create_histogram_float(name, description, "s")


__all__ = ["STEPS", "STEP_SECONDS", "TOKENS", "TOOL_CALLS", "TOOL_SECONDS", "measure_step", "measure_tool"]
