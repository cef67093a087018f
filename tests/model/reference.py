"""What a session answers to each input, in plain Python: written from the semantics, not from the code."""

from dataclasses import dataclass
from typing import Any

from tests.model.records import DEFAULT, LIFE, RETRYABLE, Message, Refused, Steering, Turn
from tests.model.turns import Turns


@dataclass
class Session(Turns):
    """Every input either raises Refused and changes nothing, or is carried out until the model's gate or the end."""

    def admit(self, caller: str) -> None:
        if self.owner is None or caller != self.owner:
            raise Refused("not_found")

    def expect(self, revision: int | None) -> None:
        if revision is not None and revision != self.expected_revision:
            raise Refused("conversation_conflict", revision=self.expected_revision)

    def send(self, caller: str, turn: Turn, body: Any, when_busy: str, revision: int | None) -> Turn:
        """A user's message; answers the turn that it gets, or got."""
        assert turn.user
        if self.owner is not None:
            self.admit(caller)
        if known := self.bodies.get(turn.user):
            if known[0] != body:
                raise Refused("duplicate_id")
            return self.turns[known[1]]
        self.bound(turn.profile or None, turn.subject)
        self.fits(turn)
        self.expect(revision)
        busy = self.live is not None or bool(self.batch)
        if when_busy == "reject" and busy:
            raise Refused("busy")
        self.bear(caller, turn.profile or None, turn.subject)
        turn.profile = turn.profile or self.profile
        turn.polite, turn.replaces = when_busy == "enqueue", when_busy == "replace" and busy
        self.bodies[turn.user] = (body, turn.id)
        if when_busy in ("interrupt", "replace"):
            for waiting in self.queue:
                waiting.cancelled |= not waiting.polite
            if self.live:
                self.cut(self.live)
        self.put(turn)
        return turn

    def bear(self, caller: str, profile: str | None, subject: str | None) -> None:
        """The first accepted input makes the session and binds it."""
        if self.owner is None:
            self.owner, self.profile, self.subject = caller, profile or DEFAULT, subject

    def bound(self, profile: str | None, subject: str | None) -> None:
        """A session with a subject refuses another one, and another profile (R52)."""
        if self.subject is not None and (profile not in (None, self.profile) or subject not in (None, self.subject)):
            raise Refused("binding_conflict")

    def fits(self, turn: Turn) -> None:
        """A new message's ids are new, its parent is known."""
        if turn.parent is not None and turn.parent not in self.messages:
            raise Refused("unknown_parent")
        if turn.user in self.messages or turn.id in self.turns:
            raise Refused("duplicate_id")

    def resume(self, caller: str, turn: Turn, revision: int | None) -> Turn:
        """A host's result."""
        assert turn.result
        call_id, _ = turn.result
        self.admit(caller)
        call = self.calls.get(call_id)
        if call and call.state:
            raise Refused("already_recorded", recorded_status=call.state[1] or "completed")
        if turn.id in self.turns:
            raise Refused("duplicate_id")
        self.expect(revision)
        if not self.batch:
            raise Refused("not_pending")
        if call_id not in self.wanted:
            raise Refused("call_mismatch", pending_call_id=self.batch[0])
        assert self.batch_of
        turn.message, turn.profile, turn.last = self.batch_of.message, self.batch_of.profile, len(self.batch) == 1
        turn.polite, turn.handover = True, self.batch_of.handover
        self.put(turn)
        return turn

    def steer(self, caller: str, new: Steering, turn_id: str, revision: int | None = None) -> tuple[str, str | None]:
        """Steering: what it is answered."""
        self.admit(caller)
        if known := self.steering.get(new.id):
            if (known.content, known.profile) != (new.content, new.profile):
                raise Refused("duplicate_id")
            return known.receipt
        self.bound(new.profile, None)
        self.expect(revision)
        self.steering[new.id] = new
        joins = [self.live] if self.live else []
        joins += [turn for turn in self.queue if not turn.cancelled and turn.last]
        if not self.batch and not any(new.profile in (None, turn.profile) for turn in joins):
            new.receipt = ("promoted", turn_id)
            self.put(Turn(turn_id, "steering", new.profile or self.profile))
        return new.receipt

    def cancel(self, caller: str, turn_id: str | None) -> tuple[bool, str | None]:
        """Whether a cancel was needed."""
        self.admit(caller)
        if self.live and turn_id in (None, self.live.id):
            turn = self.live
            self.cut(turn)
            self.work()
            return True, turn.id
        for turn in self.queue:
            if turn.id == turn_id:
                was, turn.cancelled = turn.cancelled, True
                return not was, turn.id
        if turn_id is None or turn_id in self.turns:
            return False, None
        self.tombstones.add(turn_id)
        return True, turn_id

    def repair(self, caller: str, revision: int | None) -> tuple[str | None, list[str]]:
        """What was pending, and what became unknown."""
        self.admit(caller)
        self.expect(revision)
        pending, repaired = self.batch[:1], self.settle("unknown")
        self.revision += bool(repaired)
        return (pending[0] if pending else None), repaired

    def retry(self, caller: str, turn_id: str, plan: tuple[str, ...], revision: int | None) -> Turn:
        """Another attempt of the last turn."""
        self.admit(caller)
        if self.live:
            raise Refused("not_retryable")
        self.expect(revision)
        turn = self.turns.get(turn_id)
        if turn is None:
            raise Refused("not_found")
        if turn is not self.last or turn.error not in RETRYABLE:
            raise Refused("not_retryable")
        turn.attempt, turn.plan, turn.step, turn.polite, turn.cancelled = turn.attempt + 1, plan, 0, True, False
        self.take_back(turn)
        self.put(turn)
        return turn

    def card(self, caller: str, card_id: str, content: str, body: Any, binds: tuple[str | None, str | None], revision: int | None) -> None:
        """A host card."""
        if self.owner is not None:
            self.admit(caller)
        if known := self.bodies.get(card_id):
            if known[0] != body:
                raise Refused("duplicate_id")
            return
        self.bound(*binds)
        self.expect(revision)
        if self.live or self.batch:
            raise Refused("busy")
        if card_id in self.messages:
            raise Refused("duplicate_id")
        self.bear(caller, *binds)
        self.bodies[card_id] = (body, "")
        self.messages[card_id] = Message(card_id, self.leaf, "host", content, [content] if content else [])
        self.hung_under, self.leaf, self.last = self.leaf, card_id, None
        self.revision += 1

    def move(self, caller: str, leaf: str, revision: int | None) -> None:
        """Another active leaf."""
        self.admit(caller)
        self.expect(revision)
        if self.live:
            raise Refused("busy")
        if leaf not in self.messages:
            raise Refused("not_found")
        self.settle("superseded")
        self.leaf, self.last = leaf, None
        self.revision += 1

    def delete(self, caller: str, revision: int | None) -> None:
        """The session's end; what is left to do is the one who keeps it."""
        self.admit(caller)
        self.expect(revision)

    def jump(self, seconds: float) -> bool:
        """So much time passes with nobody doing anything. False: the session's time is over."""
        self.clock += seconds
        self.tombstones.clear()
        self.ring()
        return self.clock < LIFE

    def release(self) -> None:
        """The model's gate opens."""
        turn = self.live
        assert turn
        self.close(turn, "gate", turn.text + "rest.")
        self.go_on(turn)
        self.work()
