"""What waits in a session's order, and when what waits for a host is due."""

from workflows.contracts.carried import QueuedReminder, QueuedTurn
from workflows.contracts.steps import NewMessage
from workflows.model.call import CallResult, OpenCall
from workflows.model.state import Batch, Head
from workflows.model.turn import TurnRef
from workflows.rules.alarms import next_alarm
from workflows.rules.queue import interrupted, takes_steering, waiting_turns, without

AT = "2026-01-01T00:00:00+00:00"
LATER = "2026-01-01T00:10:00+00:00"


def turn(name: str, **fields: object) -> QueuedTurn:
    ref = TurnRef(turn_id=name, number=0, message_id=f"a-{name}", accepted_at=AT)
    message = NewMessage(id=name, parent_id=None, content="hi", digest="d")
    return QueuedTurn.model_validate({"turn": ref, "profile": "one", "message": message, **fields})


def test_r72_a_message_cancels_what_waits_but_for_the_polite() -> None:
    queue = (turn("t1"), QueuedReminder(call_id="c1"), turn("t2", polite=True))
    assert [job.cancelled for job in waiting_turns(interrupted(queue, everything=False))] == [True, False]
    assert [job.cancelled for job in waiting_turns(interrupted(queue, everything=True))] == [True, True]
    assert interrupted(queue, everything=True)[1] == queue[1]
    assert [job.cancelled for job in waiting_turns(without(queue, queue[2]))] == [False, True]


def test_r151_steering_is_taken_by_a_turn_of_its_profile_that_asks_a_model() -> None:
    for queue, profile, taken in (
        ((turn("t1"),), "one", True),
        ((turn("t1"),), None, True),
        ((turn("t1"),), "two", False),
        ((turn("t1", cancelled=True),), None, False),
        ((turn("t1", runs_model=False, message=None, result=CallResult(call_id="c1", output="1")),), None, False),
        ((QueuedReminder(call_id="c1"), turn("t1", profile="two")), "two", True),
        ((), None, False),
    ):
        assert takes_steering(queue, profile) is taken


def asks(*call_ids: str, handover: str = "one", answered: tuple[str, ...] = ()) -> Batch:
    calls = [OpenCall(call_id=call_id, tool_name="t", category="host", deadline_seconds=3600, remind_seconds=60) for call_id in call_ids]
    ref = TurnRef(turn_id="t1", number=1, message_id="a1", accepted_at=AT)
    return Batch.model_validate(
        {"message_id": "a1", "turn": ref, "step": 1, "calls": calls, "handover": handover, "answered": answered, "reminded": call_ids}
    )


def due(batch: Batch) -> tuple[str, str] | None:
    alarm = next_alarm(Head(session_uid="u", batch=batch), busy=False)
    return (alarm.at, alarm.call_id) if alarm else None


def test_s58_a_deadline_counts_from_when_the_host_was_first_asked() -> None:
    assert due(asks("c1", "c2")) is None
    one = asks("c1", "c2").shown(AT)
    assert due(one) == ("2026-01-01T01:00:00+00:00", "c1")
    assert due(one.model_copy(update={"answered": ("c1",)}).shown(LATER)) == ("2026-01-01T01:10:00+00:00", "c2")
    both = asks("c1", "c2", handover="all").shown(AT)
    assert due(both.model_copy(update={"answered": ("c1",)}).shown(LATER)) == ("2026-01-01T01:00:00+00:00", "c2")
    assert due(one.model_copy(update={"asked_at": {}})) == ("2026-01-01T01:00:00+00:00", "c1")
    assert next_alarm(Head(session_uid="u", batch=one), busy=True) is None


def test_l12_a_wait_without_an_end_is_a_long_one() -> None:
    call = OpenCall(call_id="c1", tool_name="t", category="host", deadline_seconds=1e300, remind_seconds=3e11)
    batch = Batch(message_id="a", turn=turn("t1").turn, step=1, calls=(call,), since=AT)
    alarm = next_alarm(Head(session_uid="u", batch=batch), busy=False)
    assert alarm is not None and alarm.at.startswith("2125-")
