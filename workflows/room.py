"""What a session's run still has room for: Temporal terminates a workflow whose history gets too long, and everything of it would be lost."""

from collections.abc import Iterable

from temporalio import workflow

from workflows.contracts import policies
from workflows.contracts.carried import Job
from workflows.contracts.errors import Refusal
from workflows.rules.queue import waiting_characters


def is_full() -> bool:
    """True if the run's history takes no more than the end of what is under way."""
    info = workflow.info()
    return info.get_current_history_length() >= policies.FULL_EVENTS or info.get_current_history_size() >= policies.FULL_BYTES


def check_room(queue: Iterable[Job], updates: int) -> None:
    """Refuses an input for which there is no room before a turn that runs has ended. `updates` is how many the run took."""
    if is_full() or updates >= policies.FULL_UPDATES or waiting_characters(queue) >= policies.FULL_WAITING:
        raise Refusal("busy", "so much waits in this session that it takes no more now; send it again when some of that is done")
