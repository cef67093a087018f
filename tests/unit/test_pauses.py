"""What the session itself makes of a pause token: the last word on it, at the moment of acceptance."""

import pytest

from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import ContinuationInput, PauseSaid
from workflows.model.call import OpenCall
from workflows.model.state import Batch, Head
from workflows.model.turn import TurnRef
from workflows.rules.admission import check_pause

CALL = OpenCall(call_id="c1", tool_name="open_page", category="host", arguments_digest="d1")
TURN = TurnRef(turn_id="t1", number=1, message_id="a1", accepted_at="")
HEAD = Head(session_uid="u1", owner="alice", batch=Batch(message_id="a1", turn=TURN, step=1, calls=(CALL,)))
PAUSE = PauseSaid(session_uid="u1", owner="alice", arguments_digest="d1")


def test_l16_a_token_fits_what_it_was_made_for() -> None:
    check_pause(HEAD, ContinuationInput(tool_call_id="c1", pause=PAUSE))
    check_pause(HEAD.model_copy(update={"batch": None}), ContinuationInput(tool_call_id="c1", pause=PAUSE))
    check_pause(HEAD, ContinuationInput(tool_call_id="c1", principal="root"))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"session_uid": "u0"}, "not_found"),
        ({"owner": "bob"}, "forbidden"),
        ({"arguments_digest": "d0"}, "call_mismatch"),
    ],
)
def test_l16_a_token_made_for_something_else_is_refused(change: dict[str, str], code: str) -> None:
    with pytest.raises(Refusal) as caught:
        check_pause(HEAD, ContinuationInput(tool_call_id="c1", pause=PAUSE.model_copy(update=change)))
    assert caught.value.code == code
