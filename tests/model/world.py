"""Inputs to a session, each sent to the real one and to the reference model: named so that a sequence of them can be played again."""

import hashlib
from typing import Any

from tests.model.invariants import check_rows
from tests.model.reference import Session
from tests.model.sending import OWNER, Pairs
from tests.model.turns import DEFAULT, Refused, Steering, Turn
from workflows.contracts.inputs import AmendInput, CardInput, CloseInput, SteerInput

COMPONENT = {"kind": "component", "type": "note", "data": {}}


class Example(Pairs):
    """Some sessions of their own, real and modelled."""

    async def play(self, at: int, kind: str, **how: Any) -> None:
        """One input, and everything that follows from it."""
        self.played.append((at, kind, how))
        self.world.steps += 1
        await getattr(self, kind)(at, **how)
        await self._compare(at, how.get("api", 0))

    async def finish(self) -> None:
        """Lets what is held go on, and looks whether workflow and rows agree."""
        for at, model in enumerate(self.models):
            while model.live:
                await self.play(at, "release")
            await check_rows(self.world.system, model.name)

    # Inputs

    async def message(self, at: int, *, plan: tuple[str, ...] = (), parent: int | str | None = None, when_busy: str = "interrupt",
                      repeat: tuple[int, bool] | None = None, revision: int | None = None, turn: str = "", caller: str = OWNER,
                      api: int = 0) -> None:  # fmt: skip
        model = self.models[at]
        body = self._message(at, parent, when_busy)
        if repeat and self._bodies[at]:
            known = list(self._bodies[at].values())
            body = {**known[repeat[0] % len(known)]}
            body["content"] += "" if repeat[1] else " else"
        body |= self._expected(model, revision) | self._turn_id(model, turn)
        turn_id, body["turn_id"] = body["turn_id"], await self._real_turn(model, body["turn_id"])
        told = (body["content"], body.get("parent_id"), body["when_busy"])
        new = Turn(turn_id, "message", DEFAULT, plan, body["content"], body.get("parent_id"), body["id"])
        judged = self._judge(lambda: model.send(caller, new, told, when_busy, body.get("expected_revision")))
        if judged is new:
            self._bodies[at][body["id"]] = {name: body[name] for name in ("id", "content", "parent_id", "when_busy") if name in body}
        real = body.get("parent_id")
        body |= {"parent_id": await self._real(model, real)} if real else {}
        await self._chat(model, body, judged, caller, api)

    def _message(self, at: int, parent: int | str | None, when_busy: str) -> dict[str, Any]:
        model, number = self.models[at], next(self._fresh)
        body: dict[str, Any] = {"id": f"m{number}", "content": f"[{model.name}] {number}", "when_busy": when_busy}
        if isinstance(parent, int) and model.messages:
            body["parent_id"] = sorted(model.messages)[parent % len(model.messages)]
        elif parent == "unknown":
            body["parent_id"] = "nowhere"
        return body

    async def resume(self, at: int, *, which: str | int = "pending", outcome: str = "success", plan: tuple[str, ...] = (),
                     revision: int | None = None, turn: str = "", caller: str = OWNER, api: int = 0, behind: bool = False) -> None:  # fmt: skip
        model = self.models[at]
        turn_id = self._turn_id(model, turn)["turn_id"]
        if behind:
            model.release()
        call_id = self._call(model, which)
        body: dict[str, Any] = {"tool_call_id": call_id, "tool_result": call_id, "tool_outcome": outcome}
        body |= {"turn_id": await self._real_turn(model, turn_id)} | self._expected(model, revision)
        new = Turn(turn_id, "continuation", DEFAULT, plan, result=(call_id, outcome))
        judged = self._judge(lambda: model.resume(caller, new, body.get("expected_revision")))
        await self._chat(model, body, judged, caller, api, behind=behind)

    async def retry(self, at: int, *, which: int | str = "last", plan: tuple[str, ...] = (), revision: int | None = None,
                    caller: str = OWNER, api: int = 0) -> None:  # fmt: skip
        model = self.models[at]
        known = [turn.id for turn in model.turns.values() if turn.number]
        turn_id = "t-none" if which == "unknown" or not known else known[which] if isinstance(which, int) else self._last(model, known)
        expected = self._expected(model, revision)
        judged = self._judge(lambda: model.retry(caller, turn_id, plan, expected.get("expected_revision")))
        real = await self._real_turn(model, turn_id)
        await self._chat(model, expected, judged, caller, api, path=f"/sessions/{model.name}/turns/{real}/retry")

    @staticmethod
    def _last(model: Session, known: list[str]) -> str:
        return max(known, key=lambda turn_id: model.turns[turn_id].number)

    async def release(self, at: int, api: int = 0) -> None:
        model = self.models[at]
        if model.live is None:
            return
        model.release()
        self._expect(model)
        self.world.director.release(model.name)

    async def cancel(self, at: int, *, which: str | int | None = None, caller: str = OWNER, api: int = 0) -> None:
        model = self.models[at]
        turn_id = self._turn_named(model, which)
        judged = self._judge(lambda: model.cancel(caller, turn_id))
        self._expect(model)
        body = {} if turn_id is None else {"turn_id": await self._real_turn(model, turn_id)}
        answer = await self._post(f"/sessions/{model.name}/cancel", body, caller, api)
        if isinstance(judged, Refused):
            self._refused(answer, judged)
        else:
            assert answer.json() == {"cancel_requested": judged[0], "turn_id": judged[1]}, (answer.json(), judged)

    async def repair(self, at: int, *, revision: int | None = None, caller: str = OWNER, api: int = 0, behind: bool = False) -> None:
        model = self.models[at]
        if behind:
            model.release()
        expected = self._expected(model, revision)
        judged = self._judge(lambda: model.repair(caller, expected.get("expected_revision")))
        posted = self._post(f"/sessions/{model.name}/repair", expected, caller, api)
        answer = await (self._behind(model, posted) if behind else posted)
        if isinstance(judged, Refused):
            self._refused(answer, judged)
        else:
            wanted = {"session_id": model.name, "cleared_pending": judged[0], "repaired_calls": judged[1]}
            assert answer.json() == wanted, (answer.json(), wanted)

    async def steer(self, at: int, *, profile: str | None = None, repeat: tuple[int, bool] | None = None, caller: str = OWNER) -> None:
        model, number = self.models[at], next(self._fresh)
        new = Steering(f"g{number}", f"[{model.name}] steer {number}", profile)
        if repeat and model.steering:
            known = list(model.steering.values())[repeat[0] % len(model.steering)]
            new = Steering(known.id, known.content + ("" if repeat[1] else " else"), known.profile)
        turn_id = f"ts{number}"
        judged = self._judge(lambda: model.steer(caller, new, turn_id))
        self._expect(model)
        asked = SteerInput(id=new.id, content=new.content, profile=profile if not repeat else new.profile, turn_id=turn_id)
        receipt = await self._update(model, "steer", asked, caller, judged)
        if not isinstance(judged, Refused):
            assert (receipt.delivery, receipt.turn_id) == judged, (receipt, judged)

    async def card(self, at: int, *, words: bool = True, repeat: tuple[int, bool] | None = None, caller: str = OWNER) -> None:
        model, number = self.models[at], next(self._fresh)
        card_id, content = f"k{number}", f"[{model.name}] card {number}" if words else ""
        cards = [one for one in model.messages.values() if one.role == "host"]
        if repeat and cards:
            known = cards[repeat[0] % len(cards)]
            card_id, content = known.id, known.content + ("" if repeat[1] else "else")
        judged = self._judge(lambda: model.card(caller, card_id, content, content))
        await self._update(
            model, "card", CardInput(id=card_id, content=content, segments=[COMPONENT], digest=_digest(content)), caller, judged
        )

    async def move(self, at: int, *, leaf: int | str = 0, caller: str = OWNER) -> None:
        model = self.models[at]
        target = "nowhere" if leaf == "unknown" or not model.messages else sorted(model.messages)[int(leaf) % len(model.messages)]
        judged = self._judge(lambda: model.move(caller, target))
        real = await self._real(model, target)
        await self._update(model, "amend", AmendInput(fields=("active_leaf_id",), active_leaf_id=real), caller, judged)

    async def delete(self, at: int) -> None:
        model = self.models[at]
        if model.owner:
            await self._update(model, "close", CloseInput(), OWNER, None)
            self.models[at], self._bodies[at] = Session(model.name), {}

    async def roll(self, at: int) -> None:
        if self.models[at].owner:
            await self.world.system.workflow(self.models[at].name).signal("roll")

    async def restart(self, at: int) -> None:
        if not any(model.live for model in self.models):
            await self.world.restart()

    # Which

    @staticmethod
    def _expected(model: Session, off: int | None) -> dict[str, Any]:
        return {} if off is None else {"expected_revision": max(0, model.expected_revision + off)}

    def _turn_id(self, model: Session, which: str) -> dict[str, Any]:
        known = [turn.id for turn in model.turns.values() if turn.number]
        if which == "taken" and known:
            return {"turn_id": known[-1]}
        if which == "tombstone" and model.tombstones:
            return {"turn_id": sorted(model.tombstones)[-1]}
        return {"turn_id": f"t{next(self._fresh)}"}

    def _turn_named(self, model: Session, which: str | int | None) -> str | None:
        if which is None:
            return None
        if which == "new":
            return f"t{next(self._fresh)}"
        known = list(model.turns)
        return known[int(which) % len(known)] if known else "t-none"

    @staticmethod
    def _call(model: Session, which: str | int) -> str:
        if isinstance(which, int) and model.calls:
            return list(model.calls)[which % len(model.calls)]
        if which == "queued" and len(model.batch) > 1:
            return model.batch[-1]
        return model.batch[0] if which == "pending" and model.batch else "c-none"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()
