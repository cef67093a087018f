"""The calls of a response on their way to rows: ids of our own where a provider repeats one, arguments checked before anyone sees them."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from uuid import uuid4

from pydantic_ai.messages import ModelResponse, ToolCallPart

from activities.db.pool import Database
from activities.db.session_tx import sql
from activities.llm.tools import Toolbox
from activities.projection.calls import Verdict
from activities.projection.closing import NewCall
from activities.projection.describing import digest_of
from workflows.contracts.json_text import json_text
from workflows.contracts.policies import TOOL_ARGUMENT_RETRIES
from workflows.contracts.steps import RefusedCall, RunStep
from workflows.model.call import OpenCall


class StepCalls:
    """Collects a step's calls in the model's order. Each is checked once, when it is complete."""

    def __init__(self, db: Database, step: RunStep, toolbox: Toolbox) -> None:
        self._db = db
        self._step = step
        self._toolbox = toolbox
        self.new: list[NewCall] = []

    async def add(self, parts: Sequence[ToolCallPart], group: int, *, announced: bool) -> list[NewCall]:
        """Adds calls to a display group. `announced`: their `tool.call` goes out before the step ends."""
        if not parts:
            return []
        uid = self._step.session.session_uid
        async with self._db.connection() as conn:
            ids = [part.tool_call_id for part in parts]
            taken = {row["call_id"] async for row in sql.call_ids_taken(conn, session_uid=uid, call_ids=ids)}
            times = {
                row["tool_name"]: row["times"] async for row in sql.retried_calls(conn, session_uid=uid, turn_id=self._step.turn.turn_id)
            }
        taken |= {call.call.call_id for call in self.new}
        added = []
        for part in parts:
            call = await self._checked(part, group, taken, times, announced)
            taken.add(call.call.call_id)
            added.append(call)
            self.new.append(call)
        return added

    async def _checked(self, part: ToolCallPart, group: int, taken: set[str], times: dict[str, int], announced: bool) -> NewCall:
        call_id = part.tool_call_id if part.tool_call_id and part.tool_call_id not in taken else f"call_{uuid4().hex}"
        checked = await self._toolbox.check(part)
        verdict = None
        if checked.problem is not None:
            often = times.get(part.tool_name, 0)
            outcome, status = ("retried", None) if often < TOOL_ARGUMENT_RETRIES else ("failed", "failed")
            times[part.tool_name] = often + 1
            verdict = Verdict(outcome, status, json_text(checked.problem))
        call = OpenCall(
            call_id=call_id, tool_name=checked.tool_name, arguments_digest=digest_of(checked.arguments), **asdict(checked.options)
        )
        return NewCall(call, checked.arguments, group, len(self.new), verdict, announced)

    def open(self, category: str) -> tuple[OpenCall, ...]:
        """The calls of a category that wait for a result, as the workflow needs them."""
        return tuple(call.call for call in self.new if call.call.category == category and call.verdict is None)

    def refused(self) -> tuple[RefusedCall, ...]:
        """The calls that never run, and what the model is told instead."""
        return tuple(
            RefusedCall(call=call.call, outcome=call.verdict.outcome, status=call.verdict.status, problem=call.verdict.output or "")
            for call in self.new
            if call.verdict is not None
        )

    def renamed(self, response: ModelResponse) -> ModelResponse:
        """The response with the call ids that are stored and shown."""
        ids = iter(call.call.call_id for call in self.new)
        parts = [replace(part, tool_call_id=next(ids)) if isinstance(part, ToolCallPart) else part for part in response.parts]
        return replace(response, parts=parts)
