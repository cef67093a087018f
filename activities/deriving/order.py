"""The order in which a history's writes were made, as far as it matters to rows."""

from collections.abc import Iterator

from activities.deriving.histories import Run, Write

TOOLS = ("run_tool", "settle_call")


def beginnings_and_ends(run: Run) -> Iterator[tuple[str, Write]]:
    """What to play of a run: (`begin` or `end`, write).

    A write begins when it is scheduled and ends when its result comes. Steering is noted when that is scheduled: whatever takes it comes later.
    Results of calls that ran side by side come together, the one that handed the turn to the host last: it was, though its result may have
    come before others.
    """
    moments: list[tuple[int, int, str, Write]] = []
    for write in run.writes:
        moments.append((write.event, 0, "begin", write))
        if write.ended:
            moments.append((_last_beside(run, write), 1 + int(bool(write.done) and getattr(write.done, "paused", False)), "end", write))
    for _, _, what, write in sorted(moments, key=lambda one: (one[0], one[1], one[3].ended)):
        yield what, write


def _last_beside(run: Run, write: Write) -> int:
    if write.name not in TOOLS:
        return write.ended
    return max(other.ended for other in run.writes if other.name in TOOLS and _place(other) == _place(write))


def _place(write: Write) -> tuple[str, int, int]:
    turn = write.asked.turn
    return turn.turn_id, turn.attempt, write.asked.step


__all__ = ["beginnings_and_ends"]
