"""How the turns of a session run, in plain Python: no clock, no process, no storage. Written from the semantics, not from the code."""

from dataclasses import dataclass, field
from math import inf
from typing import Any

from tests.model.records import ASKS, DEFAULT, FAILS, TIMES, UNNAMED, WORDS, Call, Message, Move, Steering, Turn


@dataclass
class Turns:
    """One session and how its turns run: each until the model's gate, or to its end."""

    name: str
    owner: str | None = None
    profile: str = DEFAULT
    subject: str | None = None
    messages: dict[str, Message] = field(default_factory=dict)
    bodies: dict[str, tuple[Any, str]] = field(default_factory=dict)
    turns: dict[str, Turn] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    steering: dict[str, Steering] = field(default_factory=dict)
    tombstones: set[str] = field(default_factory=set)
    leaf: str | None = None
    hung_under: str | None = None
    revision: int = 0
    number: int = 0
    batch: list[str] = field(default_factory=list)
    batch_of: Turn | None = None
    live: Turn | None = None
    last: Turn | None = None
    queue: list[Turn] = field(default_factory=list)
    moves: list[Move] = field(default_factory=list)
    counter: int = 0
    unnamed: int = 0
    clock: float = 0.0
    now: float = 0.0
    asked_at: dict[str, float] = field(default_factory=dict)
    reminded: set[str] = field(default_factory=set)
    reminders: int = 0
    expired: int = 0
    refusals: list[tuple[str, str]] = field(default_factory=list)

    # Reading

    def path(self, leaf: str | None) -> list[Message]:
        """Root to leaf."""
        rows = []
        while leaf is not None:
            rows.append(self.messages[leaf])
            leaf = self.messages[leaf].parent
        return rows[::-1]

    @property
    def status(self) -> str:
        return "running" if self.live else "waiting_host" if self.batch else "idle"

    @property
    def expected_revision(self) -> int:
        """What a writer may expect: everything that was accepted counts."""
        return self.revision + len(self.queue)

    def waiting(self, profile: str) -> list[Steering]:
        """Steering that a turn of this profile takes."""
        return [one for one in self.steering.values() if one.message is None and one.profile in (None, profile)]

    # Running

    def put(self, turn: Turn) -> None:
        """Accepts a turn and works off what can be worked off."""
        self.turns[turn.id] = turn
        turn.cancelled |= turn.id in self.tombstones
        turn.state = "waits"
        self.queue.append(turn)
        self.work()

    def work(self) -> None:
        """Runs what waits, one after the other, until the model's gate."""
        while self.queue and self.live is None:
            self.begin(self.queue.pop(0))
        if self.live is None:
            self.ring()

    def begin(self, turn: Turn) -> None:
        if turn.kind == "steering" and turn.attempt == 1 and not self.find_place(turn):
            self.turns.pop(turn.id)
            return
        turn.state, turn.error, turn.pending = "running", None, ()
        if turn.attempt == 1:
            self.number += 1
            turn.number = self.number
            self.open(turn)
            self.leaf = turn.message
        if turn.result and not turn.last:
            if turn.cancelled:
                self.settle("cancelled")
                self.fail(turn, "cancelled", "")
            else:
                self.end(turn, "waiting")
                self.ask(self.now)
            return
        self.revision += 1
        self.live = turn
        if turn.cancelled:
            self.fail(turn, "cancelled", "")
        else:
            self.go_on(turn)

    def open(self, turn: Turn) -> None:
        """What a first attempt brings with it."""
        if turn.user:
            self.hang(turn)
        if turn.result:
            call_id, outcome = turn.result
            shown = "interrupted" if outcome == "expired" else outcome
            self.calls[call_id].state = (shown, None if outcome == "success" else WORDS[outcome])
            self.batch.remove(call_id)

    def find_place(self, turn: Turn) -> bool:
        """Steering extends the last assistant message, or makes one (R145)."""
        if not self.waiting(turn.profile):
            return False
        leaf = self.messages[self.leaf] if self.leaf else None
        turn.message = f"@{turn.id}"
        if leaf and leaf.role == "assistant" and all(other.parent != leaf.id for other in self.messages.values()):
            turn.message = leaf.id
        else:
            self.messages[turn.message] = Message(turn.message, self.leaf, "assistant")
        return True

    def hang(self, turn: Turn) -> None:
        """A user's message goes into the tree, and an answer under it; what was pending is superseded."""
        assert turn.user
        self.settle("superseded")
        parent = turn.parent or (self.hung_under if turn.replaces else None) or self.leaf
        self.hung_under = parent
        turn.message = f"@{turn.id}"
        self.messages[turn.user] = Message(turn.user, parent, "user", turn.content, [turn.content])
        self.messages[turn.message] = Message(turn.message, turn.user, "assistant")

    def go_on(self, turn: Turn) -> None:
        """Asks the model, until it holds at its gate or the turn is over."""
        while self.live is turn:
            what = turn.plan[turn.step] if turn.step < len(turn.plan) else "say"
            self.counter += 1
            text = f"{what}{self.counter}."
            self.moves.append(Move(what, text, self.asked(what), self.begin_again(turn)))
            turn.said.append("")
            if what == "gate":
                turn.text = text
                return
            self.close(turn, what, text)

    def begin_again(self, turn: Turn) -> tuple[str, ...]:
        """A step of the turn begins, perhaps once more: it takes what steering there is by now. Answers the words that the model is sent."""
        turn.taken = self.waiting(turn.profile)
        heard = [words for message in self.path(turn.message) for words in message.heard]
        return (*heard, *(one.content for one in turn.taken))

    def asked(self, what: str) -> tuple[tuple[str, str], ...]:
        """The calls that the model makes now."""
        return tuple((f"c{self.counter}-{place}", tool) for place, tool in enumerate(ASKS.get(what, ())))

    def close(self, turn: Turn, what: str, text: str) -> None:
        """A step ends."""
        if what in FAILS:
            self.fail(turn, FAILS[what], text if what == "boom" else "")
            return
        self.say(turn, "" if what in ASKS else text)
        self.messages[turn.message].error = None
        for one in turn.taken:
            one.message = turn.message
            self.messages[turn.message].heard.append(one.content)
        turn.step += 1
        made = [Call(call_id, tool, turn.message, ("success", None) if tool == "add" else None) for call_id, tool in self.asked(what)]
        self.calls |= {call.id: call for call in made}
        self.batch = [call.id for call in made if call.state is None]
        if self.batch:
            self.batch_of = turn
            self.end(turn, "waiting")
            self.ask(0.0)
        elif not made and not self.waiting(turn.profile):
            self.end(turn, "completed")

    def say(self, turn: Turn, text: str) -> None:
        turn.said[-1] = text
        self.messages[turn.message].content += text

    def cut(self, turn: Turn) -> None:
        """A live turn, which stands at the model's gate, is cancelled: what was streamed is kept."""
        self.fail(turn, "cancelled", f"{turn.text}")

    def fail(self, turn: Turn, error: str, text: str) -> None:
        if text:
            self.say(turn, text)
        self.messages[turn.message].error = turn.error = error
        self.end(turn, "cancelled" if error == "cancelled" else "failed")

    def end(self, turn: Turn, state: str) -> None:
        self.revision += 1
        turn.state, turn.revision, turn.pending, turn.taken = state, self.revision, tuple(self.batch), []
        self.live, self.last = None, turn
        left = [one for one in self.steering.values() if one.message is None and one.profile not in (None, turn.profile)]
        if state == "completed" and left and not self.queue:
            self.unnamed += 1
            self.put(Turn(f"{UNNAMED}{self.unnamed}", "steering", left[0].profile or self.profile))

    def settle(self, status: str) -> list[str]:
        """What was pending gets one status; answers the calls."""
        settled, self.batch = self.batch, []
        for call_id in settled:
            self.calls[call_id].state = ("interrupted", status)
        return settled

    def take_back(self, turn: Turn) -> None:
        """A retry begins with the failed step: what that had said is gone."""
        text = turn.said.pop() if turn.said else ""
        message = self.messages[turn.message]
        assert message.content.endswith(text)
        message.content = message.content.removesuffix(text)

    # Time

    @property
    def wanted(self) -> list[str]:
        """The calls that the host is asked for now."""
        return self.batch if self.batch_of and self.batch_of.handover == "all" else self.batch[:1]

    def ask(self, at: float) -> None:
        """The host is asked. Model steps are dated by a worker, whose clock knows nothing of jumps; results by the session's own clock."""
        for call_id in self.wanted:
            self.asked_at.setdefault(call_id, at)

    def alarms(self) -> list[tuple[float, str, str]]:
        """What is due by now, the earliest first. Real time hardly passes in an example: only jumps count, from the session's beginning."""
        timed = [(call_id, self.asked_at[call_id], TIMES.get(self.calls[call_id].tool)) for call_id in self.wanted]
        due = [(at + after, "deadline", call_id) for call_id, at, after in timed if after]
        due += [(at + after / 2, "reminder", call_id) for call_id, at, after in timed if after and call_id not in self.reminded]
        return sorted(alarm for alarm in due if alarm[0] <= self.clock)

    def until_deadline(self) -> float:
        """Seconds to the next deadline of a call that the host is asked for; infinite if there is none."""
        timed = [(self.asked_at[call_id], TIMES.get(self.calls[call_id].tool)) for call_id in self.wanted]
        return min((at + after - self.clock for at, after in timed if after), default=inf)

    def ring(self) -> None:
        """Reminds, and records as unknown, as long as something is due: each at its own time, from which the next call is waited for."""
        while self.live is None and (due := self.alarms()):
            when, what, call_id = due[0]
            self.now = max(self.now, when)
            if what == "reminder":
                self.reminded.add(call_id)
                self.reminders += 1
            else:
                self.expire(call_id)
        self.now = self.clock

    def expire(self, call_id: str) -> None:
        """A deadline passes: the model goes on knowing that nothing is known."""
        assert self.batch_of
        self.expired += 1
        self.unnamed += 1
        turn = Turn(f"{UNNAMED}{self.unnamed}", "continuation", self.batch_of.profile, result=(call_id, "expired"))
        turn.message, turn.last, turn.polite, turn.handover = self.batch_of.message, len(self.batch) == 1, True, self.batch_of.handover
        self.put(turn)
