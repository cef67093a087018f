"""How an input is offered to a session until it is judged."""

import pytest
from temporalio.client import WorkflowUpdateFailedError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from api import sending
from api.sending import _until_taken
from workflows.contracts.errors import Refusal, RefusalCode, ServiceUnavailable
from workflows.contracts.inputs import CancelReceipt

TAKEN = CancelReceipt(cancel_requested=True)
ROLLED_OVER = ApplicationError("the run has ended", type="AcceptedUpdateCompletedWorkflow")


class Offers:
    """Refuses as often as there are failures, then takes. `lives` are those of the id that it was offered to."""

    def __init__(self, *failures: ApplicationError | RPCError) -> None:
        self._failures = list(failures)
        self.lives: list[int] = []

    async def __call__(self, life: int) -> CancelReceipt:
        self.lives.append(life)
        if self._failures:
            failure = self._failures.pop(0)
            raise WorkflowUpdateFailedError(failure) if isinstance(failure, ApplicationError) else failure
        return TAKEN


def refusal(code: RefusalCode) -> ApplicationError:
    return Refusal(code, "not now").as_failure()


async def test_l06_an_input_that_meets_a_rollover_is_offered_again_as_the_same() -> None:
    offers = Offers(refusal("rolling"), ROLLED_OVER, refusal("rolling"))
    assert await _until_taken(offers, absent_again=False) == TAKEN
    assert offers.lives == [0, 0, 0, 0]


async def test_s20_an_input_that_meets_the_end_of_a_session_is_for_the_next_life_of_its_id() -> None:
    offers = Offers(refusal("closed"), refusal("rolling"), refusal("closed"))
    assert await _until_taken(offers, absent_again=True) == TAKEN
    assert offers.lives == [0, 1, 1, 2]


@pytest.mark.parametrize(("code", "told"), [("closed", "not_found"), ("busy", "busy")])
async def test_s20_an_input_that_begins_no_session_is_told_so(code: RefusalCode, told: str) -> None:
    with pytest.raises(Refusal) as refused:
        await _until_taken(Offers(refusal(code)), absent_again=False)
    assert refused.value.code == told


def fault(status: RPCStatusCode) -> RPCError:
    return RPCError("something went wrong, please retry", status, b"")


async def test_r63_an_input_survives_faults_of_temporal_that_pass() -> None:
    passing = [RPCStatusCode.INTERNAL, RPCStatusCode.UNKNOWN, RPCStatusCode.ABORTED, RPCStatusCode.DATA_LOSS, RPCStatusCode.UNAVAILABLE]
    offers = Offers(*map(fault, passing))
    assert await _until_taken(offers, absent_again=False) == TAKEN
    assert offers.lives == [0] * 6


async def test_r63_faults_of_temporal_that_stay_are_told_with_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sending, "DOWN_SECONDS", 0.1)
    with pytest.raises(ServiceUnavailable, match="something went wrong, please retry") as failed:
        await _until_taken(Offers(*[fault(RPCStatusCode.INTERNAL)] * 50), absent_again=False)
    assert failed.value.maybe_happened


async def test_r63_what_temporal_refuses_for_good_is_not_offered_again() -> None:
    offers = Offers(fault(RPCStatusCode.INVALID_ARGUMENT))
    with pytest.raises(ServiceUnavailable):
        await _until_taken(offers, absent_again=False)
    assert offers.lives == [0]
