"""What happens to a session when nobody does anything: reminders, deadlines of host actions, expiry."""

import contextlib
from datetime import datetime

from temporalio import workflow

from workflows.contracts.carried import QueuedClose, QueuedReminder
from workflows.model.state import Alarm
from workflows.rules.alarms import next_alarm
from workflows.session_inputs import SessionInputs
from workflows.session_jobs import SessionJobs


class SessionClock:
    """One watcher for every alarm. It sleeps until the earliest; an earlier one wakes it, a later one costs nothing."""

    def __init__(self, jobs: SessionJobs, inputs: SessionInputs) -> None:
        self._jobs = jobs
        self._inputs = inputs

    async def watch(self) -> None:
        """Lives as long as the run."""
        while True:
            await workflow.wait_condition(lambda: self._next() is not None)
            alarm = self._next()
            if alarm is not None and await self._reached(alarm):
                self._ring(alarm)

    def _next(self) -> Alarm | None:
        return next_alarm(self._jobs.state.head, busy=self._jobs.busy or bool(self._jobs.state.queue) or self._jobs.closed)

    async def _reached(self, alarm: Alarm) -> bool:
        """True when it is time. False: another alarm is due before it."""
        left = datetime.fromisoformat(alarm.at) - workflow.now()
        if left.total_seconds() <= 0:
            return True
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(lambda: self._earlier_than(alarm), timeout=left, timeout_summary=alarm.what)
        return self._next() == alarm

    def _earlier_than(self, alarm: Alarm) -> bool:
        upcoming = self._next()
        return upcoming is not None and datetime.fromisoformat(upcoming.at) < datetime.fromisoformat(alarm.at)

    def _ring(self, alarm: Alarm) -> None:
        jobs = self._jobs
        if alarm.what == "expiry":
            jobs.enqueue(QueuedClose())
        elif alarm.what == "deadline":
            self._inputs.expire(alarm.call_id)
        elif batch := jobs.state.head.batch:
            jobs.set_head(batch=batch.model_copy(update={"reminded": (*batch.reminded, alarm.call_id)}))
            jobs.enqueue(QueuedReminder(call_id=alarm.call_id))
