"""What waits for its place in a session's order."""

from collections.abc import Iterable

from workflows.contracts.carried import Job, QueuedTurn


def waiting_turns(queue: Iterable[Job]) -> list[QueuedTurn]:
    """The turns that wait to run, in their order."""
    return [job for job in queue if isinstance(job, QueuedTurn)]


def waiting_characters(queue: Iterable[Job]) -> int:
    """How much content waits: texts, files in base64, results."""
    return sum(_characters(turn) for turn in waiting_turns(queue))


def _characters(turn: QueuedTurn) -> int:
    said = len(turn.message.content) + sum(len(file.data) for file in turn.message.attachments) if turn.message else 0
    return said + (len(turn.result.output) if turn.result else 0)


def interrupted(queue: Iterable[Job], *, everything: bool) -> tuple[Job, ...]:
    """The queue once a message came: turns that wait are to be recorded as cancelled, the polite ones only with `everything`."""
    return tuple(
        job.model_copy(update={"cancelled": True}) if isinstance(job, QueuedTurn) and (everything or not job.polite) else job
        for job in queue
    )


def without(queue: Iterable[Job], cancelled: QueuedTurn) -> tuple[Job, ...]:
    """The queue once a turn of it is to be recorded as cancelled."""
    return tuple(job.model_copy(update={"cancelled": True}) if job is cancelled else job for job in queue)


def takes_steering(queue: Iterable[Job], profile: str | None) -> bool:
    """True if a turn that waits will take steering of the profile (None: of any) with its model request (R151)."""
    asking = (turn for turn in waiting_turns(queue) if turn.runs_model and not turn.cancelled)
    return any(profile in (None, turn.profile) for turn in asking)
