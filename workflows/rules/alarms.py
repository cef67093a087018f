"""When a session that nobody touches has something to do."""

from datetime import datetime, timedelta

from workflows.contracts.horizon import LONGEST_SECONDS
from workflows.model.state import Alarm, Batch, Head


def next_alarm(head: Head, *, busy: bool) -> Alarm | None:
    """The earliest alarm; None while something is under way, which decides anew when it has ended."""
    if busy:
        return None
    alarms = _of_batch(head.batch) if head.batch else []
    if head.expires_at and not (head.batch and head.hold_while_pending):
        alarms.append(Alarm(at=head.expires_at, what="expiry"))
    return min(alarms, key=lambda alarm: (datetime.fromisoformat(alarm.at), alarm.what, alarm.call_id), default=None)


def is_over(head: Head, now: datetime) -> bool:
    """True if the session's time is over, however late its timer is. Only while nothing is under way."""
    held = head.batch is not None and head.hold_while_pending
    return bool(head.expires_at) and not held and datetime.fromisoformat(head.expires_at) <= now


def _of_batch(batch: Batch) -> list[Alarm]:
    alarms = []
    for call in batch.asked:
        asked_at = batch.asked_at.get(call.call_id, batch.since)
        if not asked_at:
            continue
        since = datetime.fromisoformat(asked_at)
        if call.deadline_seconds is not None:
            due = since + _no_longer(call.deadline_seconds)
            alarms.append(Alarm(at=due.isoformat(), what="deadline", call_id=call.call_id))
        if call.remind_seconds is not None and call.call_id not in batch.reminded:
            due = since + _no_longer(call.remind_seconds)
            alarms.append(Alarm(at=due.isoformat(), what="reminder", call_id=call.call_id))
    return alarms


def _no_longer(seconds: float) -> timedelta:
    """A wait that has an end with a date: an alarm that can't be computed would fail the session's every task (L12)."""
    return timedelta(seconds=min(seconds, LONGEST_SECONDS))
