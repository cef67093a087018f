"""A session is what the reference model says, whatever is sent to it: random inputs, everything real but the model."""

import asyncio
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests import services
from tests.model.records import DEFAULT, OTHER
from tests.model.sending import STRANGER, Step, World
from tests.model.sequences import REGRESSIONS
from tests.model.world import Example
from workflows.contracts import policies

if TYPE_CHECKING:
    from cli.services.postgres import PostgresServer

LONG = bool(os.environ.get("TEST_LONG"))
EXAMPLES = int(os.environ.get("MACHINE_EXAMPLES") or (2000 if LONG else 12))
STEPS = 15

AT = st.integers(0, 1)
API = st.integers(0, 1)
ENDINGS = ("say", "host1", "host2", "host3", "mixed", "soon", "both", "boom", "bad", "empty")
PLANS = st.one_of(
    st.sampled_from([(end,) for end in ENDINGS]),
    st.sampled_from([("server", end) for end in ENDINGS]),
    st.sampled_from([("gate",), ("gate",), ("gate", "host1"), ("server", "gate"), ("gate", "boom")]),
)
REVISION = st.sampled_from([None, None, None, None, 0, 0, 1])
REPEAT = st.one_of(st.none(), st.none(), st.tuples(st.integers(0, 5), st.booleans()))
PARENT = st.one_of(st.none(), st.none(), st.integers(0, 20), st.just("unknown"))
WHEN_BUSY = st.sampled_from(["interrupt", "interrupt", "enqueue", "reject", "replace"])
TURN = st.sampled_from(["", "", "", "tombstone", "taken"])
OUTCOME = st.sampled_from(["success", "success", "failed", "denied"])
CALL = st.one_of(st.just("pending"), st.just("pending"), st.just("queued"), st.just("unknown"), st.integers(0, 9))
PROFILE = st.sampled_from([None, None, None, DEFAULT, OTHER])
SUBJECT = st.sampled_from([None, None, None, None, "anna", "ben"])
HANDOVER = st.sampled_from([None, None, "all", "one"])
KEY = st.booleans()
SIGNALS = ("message", "continuation", "host_result", "steer", "cancel")


class Loop:
    """One event loop for everything: the system's tasks live in it while an example waits."""

    def __init__(self, postgres: "PostgresServer", address: str) -> None:
        self._runner = asyncio.Runner()
        self._fresh = services.fresh_database(postgres)
        self.world = World(self.run(self._fresh.__aenter__()), address)
        self.run(self.world.start())

    def run(self, work: Any) -> Any:
        return self._runner.run(work)

    def close(self) -> None:
        self.run(self.world.stop())
        self.run(self._fresh.__aexit__(None, None, None))
        self._runner.close()


@pytest.fixture(scope="module")
def loop(postgres: "PostgresServer") -> Iterator[Loop]:
    """The system of all examples. Inputs that wait for a turn are sent back early."""
    with (
        pytest.MonkeyPatch.context() as early,
        services.running_temporal(dynamic={"frontend.WorkflowTimeSkippingEnabled": "true"}) as server,
    ):
        early.setattr(policies, "LATE_INPUT_WAIT", timedelta(seconds=0.4))
        shared = Loop(postgres, server.address)
        yield shared
        print(f"\nmachine: {Machine.examples} examples, {shared.world.steps} steps; {dict(shared.world.played.most_common())}")
        shared.close()


class Machine(RuleBasedStateMachine):
    """Inputs to two sessions of one owner. Fresh ones in each example; the processes stay."""

    loop: ClassVar[Loop]
    failure: ClassVar[BaseException | None] = None
    examples = 0

    def __init__(self) -> None:
        super().__init__()
        Machine.examples += 1
        self.example = Example(self.loop.world)
        self.failed = False

    def play(self, at: int, kind: str, **how: Any) -> None:
        self.run(self.example.play(at, kind, **how))

    def teardown(self) -> None:
        if not self.failed:
            self.run(self.example.finish())

    def run(self, work: Any) -> None:
        """The first failure is the one to look at: with everything real, the same steps need not fail again."""
        try:
            self.loop.run(work)
        except BaseException as error:
            self.failed = True
            error.add_note(f"played in example {self.examples}, step {self.loop.world.steps}: {self.example.played}")
            Machine.failure = Machine.failure or error
            raise

    @property
    def rested(self) -> bool:
        """False where time passed just now: another jump would be like one."""
        return not self.example.played or self.example.played[-1][1] != "jump"

    def live(self, at: int) -> bool:
        return self.example.models[at].live is not None

    @rule(at=AT, plan=PLANS, parent=PARENT, when_busy=WHEN_BUSY, repeat=REPEAT, revision=REVISION, turn=TURN, api=API, handover=HANDOVER,
          profile=PROFILE, subject=SUBJECT, key=KEY)  # fmt: skip
    def message(self, at: int, plan: tuple[str, ...], when_busy: str, **how: Any) -> None:
        if self.live(at) and when_busy == "enqueue":
            plan = tuple(move for move in plan if move != "gate")
        self.play(at, "message", plan=plan, when_busy=when_busy, **how)

    @rule(at=AT, plan=PLANS)
    def say(self, at: int, plan: tuple[str, ...]) -> None:
        self.play(at, "message", plan=plan)

    @precondition(lambda self: any(model.batch for model in self.example.models))
    @rule(plan=PLANS, outcome=OUTCOME, api=API, which=CALL, key=KEY)
    def answer(self, **how: Any) -> None:
        at = next(at for at, model in enumerate(self.example.models) if model.batch)
        self.play(at, "resume", **how)

    @rule(at=AT, which=CALL, outcome=OUTCOME, plan=PLANS, revision=REVISION, turn=TURN, api=API, key=KEY)
    def resume(self, at: int, **how: Any) -> None:
        if not self.live(at):
            self.play(at, "resume", **how)

    @precondition(lambda self: any(model.live for model in self.example.models))
    @rule(kind=st.sampled_from(["release", "resume", "repair", "cancel"]), api=API)
    def go_on(self, kind: str, api: int) -> None:
        at = next(at for at, model in enumerate(self.example.models) if model.live)
        # After a jump a deadline may be due in the moment in which the turn ends, and would race an input that waits for that.
        behind = kind in ("resume", "repair")
        if not (behind and self.example.models[at].clock):
            self.play(at, kind, api=api, **({"behind": True} if behind else {}))

    @rule(at=AT, which=st.one_of(st.none(), st.just("new"), st.integers(0, 9)), api=API, key=KEY)
    def cancel(self, at: int, **how: Any) -> None:
        self.play(at, "cancel", **how)

    @precondition(lambda self: any(self.example.kept))
    @rule(at=AT, which=st.integers(0, 9), other=st.booleans(), api=API)
    def again(self, at: int, **how: Any) -> None:
        self.play(at if self.example.kept[at] else 1 - at, "again", **how)

    @rule(at=AT, name=st.sampled_from(SIGNALS), plan=PLANS, which=st.sampled_from(["pending", "first"]))
    def signal(self, at: int, **how: Any) -> None:
        self.play(at, "signal", **how)

    @precondition(lambda self: self.rested and any(model.batch and not model.live for model in self.example.models))
    @rule(hours=st.sampled_from([0.6, 1.1, 1.1, 5.1, 11.3]))
    def wait(self, hours: float) -> None:
        at = next(at for at, model in enumerate(self.example.models) if model.batch and not model.live)
        self.play(at, "jump", hours=hours)

    @precondition(lambda self: self.rested and any(model.owner and not model.live for model in self.example.models))
    @rule(hours=st.sampled_from([0.6, 11.3, 1100.0]))
    def jump(self, hours: float) -> None:
        at = next(at for at, model in enumerate(self.example.models) if model.owner and not model.live)
        self.play(at, "jump", hours=hours)

    @rule(at=AT, revision=REVISION, api=API, key=KEY)
    def repair(self, at: int, **how: Any) -> None:
        if not self.live(at):
            self.play(at, "repair", **how)

    @rule(at=AT, which=st.one_of(st.just("last"), st.just("last"), st.just("unknown"), st.integers(-3, -1)), plan=PLANS, revision=REVISION,
          key=KEY)  # fmt: skip
    def retry(self, at: int, which: int | str, **how: Any) -> None:
        known = sum(1 for turn in self.example.models[at].turns.values() if turn.number)
        self.play(at, "retry", which=which if isinstance(which, str) or known >= -which else "last", **how)

    @rule(at=AT, profile=PROFILE, repeat=REPEAT, revision=REVISION)
    def steer(self, at: int, **how: Any) -> None:
        self.play(at, "steer", **how)

    @rule(at=AT, words=st.booleans(), repeat=REPEAT, revision=REVISION, profile=PROFILE, subject=SUBJECT)
    def card(self, at: int, **how: Any) -> None:
        self.play(at, "card", **how)

    @rule(at=AT, leaf=st.one_of(st.integers(0, 20), st.just("unknown")), revision=REVISION)
    def move(self, at: int, **how: Any) -> None:
        self.play(at, "move", **how)

    @rule(at=AT, kind=st.sampled_from(["message", "resume", "cancel", "repair", "retry", "steer", "card", "move", "delete", *SIGNALS]),
          signalled=st.booleans())  # fmt: skip
    def stranger(self, at: int, kind: str, signalled: bool) -> None:
        if not self.example.models[at].owner:
            return
        if kind in SIGNALS and (signalled or kind in ("continuation", "host_result")):
            self.play(at, "signal", name=kind, caller=STRANGER)
        else:
            self.play(at, kind, caller=STRANGER)

    @rule(at=AT, kind=st.sampled_from(["roll", "roll", "delete", "restart"]))
    def upset(self, at: int, kind: str) -> None:
        self.play(at, kind)


@pytest.mark.timeout(20_000 if LONG else 420)
def test_l23_l27_any_inputs_come_to_what_the_reference_model_says(loop: Loop) -> None:
    Machine.loop = loop
    chosen = settings(
        max_examples=EXAMPLES,
        stateful_step_count=STEPS,
        derandomize=not LONG,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(Machine, settings=chosen)
    except Exception as error:
        raise Machine.failure or error from None


@pytest.mark.parametrize("steps", REGRESSIONS.values(), ids=REGRESSIONS.keys())
def test_sequences_that_once_went_wrong(loop: Loop, steps: list[Step]) -> None:
    async def played() -> None:
        example = Example(loop.world)
        for at, kind, how in steps:
            await example.play(at, kind, **how)
        await example.finish()

    loop.run(played())
