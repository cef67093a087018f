"""Server tools, as activities."""

import asyncio
import time

import asyncpg
from temporalio import activity

from activities.beating import beating
from activities.db.session_tx import SessionGone, SessionTx, now_text, sql
from activities.kit import Kit
from activities.limits import turn_seconds
from activities.llm.tools import Toolbox, ToolOutcome, too_large
from activities.measures import measure_tool
from activities.patience import patiently
from activities.projection.calls import Verdict
from activities.projection.tooling import record_tool, tool_done
from activities.running import Running, guarded
from profiles import ToolContext
from workflows.contracts.json_text import json_text
from workflows.contracts.policies import TOOL_RETRY_SECONDS
from workflows.contracts.tools import RunTool, SettleCall, ToolDone


class Tools:
    """Runs server tools and records what came of them."""

    def __init__(self, kit: Kit, running: Running) -> None:
        self._kit = kit
        self._running = running

    @activity.defn
    async def run_tool(self, call: RunTool) -> ToolDone:
        """Runs a server tool and commits its result."""
        async with beating():
            return await guarded(self._run(call))

    async def _run(self, call: RunTool) -> ToolDone:
        run = ToolRun(self._kit, call)
        done = await self._running.once(_key(call), run, run.run)
        measure_tool(call.call.tool_name, done)
        return done

    @activity.defn
    async def settle_call(self, call: SettleCall) -> ToolDone:
        """Commits the result of a call that nobody will run to its end. A result that came meanwhile stays."""
        async with beating():
            run = ToolRun(self._kit, call)
            return await guarded(self._running.once(_key(call), run, lambda: run.settle(call)))


def _key(call: RunTool) -> str:
    return f"{call.session.session_uid}/{call.call.call_id}"


class ToolRun:
    """One run of one call."""

    def __init__(self, kit: Kit, call: RunTool) -> None:
        self._kit = kit
        self._call = call
        self._stopped = asyncio.Event()
        self._started = time.monotonic()

    def stop(self) -> None:
        """Cancels the call: what it did by then is unknown, and the workflow ends the turn."""
        self._stopped.set()

    async def run(self) -> ToolDone:
        """Runs the tool unless the call has a result already."""
        row = await patiently(self._find)
        if row is None or row["state"] == "recorded":
            return await patiently(self._recorded_before)
        outcome = await self._watched(row["arguments"])
        if outcome is None:
            late = not self._stopped.is_set()
            return ToolDone(call_id=self._call.call.call_id, recorded=False, out_of_time=late, at=now_text(), seconds=self._seconds)
        outcome = self._kept(outcome)
        status = "failed" if outcome.outcome == "failed" else None
        verdict = Verdict(outcome.outcome, status, outcome.output_json, duration_ms=round(self._seconds * 1000))
        return await patiently(lambda: self._commit(verdict))

    def _kept(self, outcome: ToolOutcome) -> ToolOutcome:
        """The outcome, or what is said of it instead if no row is to hold it."""
        size, most = len(outcome.output_json.encode()), self._kit.settings.tool_result_limit_bytes
        return outcome if size <= most else too_large(self._call.call.tool_name, size, most)

    async def settle(self, settle: SettleCall) -> ToolDone:
        """Records the verdict that the workflow came to."""
        outcome = "interrupted" if settle.status == "unknown" else "failed"
        return await patiently(lambda: self._commit(Verdict(outcome, settle.status, json_text(settle.reason))))

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    async def _find(self) -> asyncpg.Record | None:
        async with self._kit.db.connection() as conn:
            row: asyncpg.Record | None = await sql.find_call(
                conn, session_uid=self._call.session.session_uid, call_id=self._call.call.call_id
            )
            return row

    async def _owner(self) -> str:
        async with self._kit.db.connection() as conn:
            owner: str | None = await sql.owner_of(conn, session_uid=self._call.session.session_uid)
            return owner or ""

    async def _watched(self, arguments: str) -> ToolOutcome | None:
        """The outcome of the last attempt; None if the call was cancelled or the turn's time is over (R84)."""
        left = turn_seconds(self._kit.settings) - self._call.spent_seconds - self._seconds
        tool = asyncio.create_task(self._attempts(arguments))
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait((tool, stopped), timeout=max(0.0, left), return_when=asyncio.FIRST_COMPLETED)
            return tool.result() if tool.done() else None
        finally:
            for task in (tool, stopped):
                task.cancel()
            await asyncio.gather(tool, stopped, return_exceptions=True)

    async def _attempts(self, arguments: str) -> ToolOutcome:
        call, session = self._call.call, self._call.session
        toolbox = Toolbox(self._kit.profile(self._call.profile))
        context = ToolContext(
            tenant=session.tenant, principal=await patiently(self._owner), session_id=session.session_id, call_id=call.call_id
        )
        outcome = await toolbox.run(call.tool_name, arguments, context)
        for attempt in range(1, call.attempts):
            if outcome.outcome != "failed":
                break
            await asyncio.sleep(TOOL_RETRY_SECONDS * attempt)
            outcome = await toolbox.run(call.tool_name, arguments, context)
        return outcome

    async def _recorded_before(self) -> ToolDone:
        try:
            async with self._kit.session(self._call.session) as tx:
                return await self._recorded(tx)
        except SessionGone:
            return _known(self._call, None)

    async def _recorded(self, tx: SessionTx) -> ToolDone:
        row = await sql.find_call(tx.conn, session_uid=tx.uid, call_id=self._call.call.call_id)
        return _known(self._call, row, tx.expiry)

    async def _commit(self, verdict: Verdict) -> ToolDone:
        """Records the result; with the last one beside open host calls the host is asked and the turn ends, in one transaction (R105)."""
        call, turn, at = self._call, self._call.turn, now_text()
        lost = ToolDone(call_id=call.call.call_id, recorded=False, at=at, seconds=self._seconds)
        try:
            async with self._kit.session(call.session, turn.turn_id) as tx:
                if tx.turn_attempt == turn.attempt and tx.turn_state == "waiting":
                    return await self._recorded(tx)  # by a try whose answer was lost
                if tx.turn_state != "running" or tx.turn_attempt != turn.attempt:
                    return lost
                paused = await record_tool(tx, call, verdict, at)
                if paused is None:
                    return await self._recorded(tx)
                expires_at = tx.expiry if paused else ""
        except SessionGone:
            return lost
        return ToolDone(
            call_id=call.call.call_id,
            output=verdict.output or "",
            outcome=verdict.outcome,
            status=verdict.status,
            paused=paused,
            at=at,
            expires_at=expires_at,
            seconds=self._seconds,
            duration_ms=verdict.duration_ms,
        )


def _known(call: RunTool, row: asyncpg.Record | None, expires_at: str = "") -> ToolDone:
    """The answer of a call that has its result already, or whose session is gone."""
    if row is None:
        return ToolDone(call_id=call.call.call_id, recorded=False, at=now_text())
    return tool_done(row).model_copy(update={"paused": row["paused"], "expires_at": expires_at if row["paused"] else ""})
