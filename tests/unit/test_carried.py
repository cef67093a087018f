"""What a run hands to the next one: everything that is needed, and no more."""

from datetime import UTC, datetime, timedelta

from workflows.contracts.carried import KeyedAnswer, QueuedTurn, SessionState
from workflows.contracts.policies import CARRIED_IDS
from workflows.contracts.steps import NewMessage
from workflows.model.call import CallResult
from workflows.model.state import Recent
from workflows.model.turn import TurnRef
from workflows.rules.state import carried

NOW = datetime(2026, 1, 1, tzinfo=UTC)
NEWEST = range(300 - CARRIED_IDS, 300)


def turn(number: int) -> TurnRef:
    return TurnRef(turn_id=f"t{number}", number=0, message_id=f"a{number}", accepted_at=NOW.isoformat())


def recent(number: int) -> Recent:
    return Recent(digest="d", turn_id=f"t{number}", message_id=f"a{number}", user_message_id=f"u{number}")


def test_l07_ids_of_inputs_that_still_wait_are_carried_however_many_there_are() -> None:
    waiting = [
        QueuedTurn(turn=turn(number), profile="p", message=NewMessage(id=f"u{number}", parent_id=None, content="x", digest="d"))
        for number in range(100)
    ]
    waiting.append(QueuedTurn(turn=turn(900), profile="p", result=CallResult(call_id="c0", output="1")))
    state = SessionState(
        queue=tuple(waiting),
        recent={f"u{number}": recent(number) for number in range(200)},
        recorded={f"c{number}": "completed" for number in range(200)},
    )
    kept = SessionState.model_validate_json(carried(state, NOW).model_dump_json())
    assert kept.queue == state.queue
    assert set(kept.recent) == {f"u{number}" for number in (*range(100), *range(200 - CARRIED_IDS, 200))}
    assert set(kept.recorded) == {"c0", *(f"c{number}" for number in range(200 - CARRIED_IDS, 200))}


def test_l01_of_the_past_only_the_newest_ids_and_keys_are_carried() -> None:
    state = SessionState(
        recent={f"u{number}": recent(number) for number in range(300)},
        keys={f"k{number}": KeyedAnswer(digest="d", answer="{}") for number in range(300)},
    )
    kept = carried(state, NOW)
    assert list(kept.recent) == [f"u{number}" for number in NEWEST]
    assert list(kept.keys) == [f"k{number}" for number in NEWEST]


def test_l01_a_cancel_of_a_turn_that_never_came_is_carried_for_as_long_as_it_counts() -> None:
    late, due = (NOW - timedelta(seconds=1)).isoformat(), (NOW + timedelta(seconds=1)).isoformat()
    assert carried(SessionState(tombstones={"t1": late, "t2": due}), NOW).tombstones == {"t2": due}
