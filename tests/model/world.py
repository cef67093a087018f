"""Inputs to a session, each sent to the real one and to the reference model: named so that a sequence of them can be played again."""

import hashlib
from typing import Any

from tests.model.comparing import ended_of, model_ended
from tests.model.invariants import check_rows
from tests.model.records import Refused, Steering, Turn
from tests.model.reference import Session
from tests.model.sending import OWNER
from tests.model.upsets import Upsets
from workflows.contracts.inputs import AmendInput, CardInput, CloseInput, SteerInput

MEANING = ("content", "parent_id", "when_busy", "config", "profile", "subject")
COMPONENT = {"kind": "component", "type": "note", "data": {}}


class Example(Upsets):
    """Some sessions of their own, real and modelled."""

    async def play(self, at: int, kind: str, **how: Any) -> None:
        """One input, and everything that follows from it."""
        self.played.append((at, kind, how))
        self.world.played[kind] += 1
        await getattr(self, kind)(at, **how)
        await self._compare(at, how.get("api", 0))

    async def finish(self) -> None:
        """Lets what is held go on, and looks whether workflow and rows agree."""
        for at, model in enumerate(self.models):
            while model.live:
                await self.play(at, "release")
            await check_rows(self.world.system, model.name)
            await self.world.verify(model.name)

    # Inputs

    async def message(self, at: int, *, plan: tuple[str, ...] = (), parent: int | str | None = None, when_busy: str = "interrupt",
                      repeat: tuple[int, bool] | None = None, revision: int | None = None, turn: str = "", caller: str = OWNER,
                      api: int = 0, handover: str | None = None, profile: str | None = None, subject: str | None = None,
                      key: bool = False) -> None:  # fmt: skip
        model = self.models[at]
        body = self._message(at, parent, when_busy) | ({"config": {"handover": handover}} if handover else {})
        body |= {name: value for name, value in (("profile", profile), ("subject", subject)) if value}
        if repeat and self._bodies[at]:
            known = list(self._bodies[at].values())
            body = {**known[repeat[0] % len(known)]}
            body["content"] += "" if repeat[1] else " else"
        told = tuple(str(body.get(name)) for name in MEANING)
        body |= self._expected(model, revision) | self._turn_id(model, turn)
        turn_id, body["turn_id"] = body["turn_id"], await self._real_turn(model, body["turn_id"])
        new = Turn(turn_id, "message", body.get("profile", ""), plan, body["content"], body.get("parent_id"), body["id"])
        new.handover, new.subject = body.get("config", {}).get("handover", "one"), body.get("subject")
        judged = self._judge(lambda: model.send(caller, new, told, body["when_busy"], body.get("expected_revision")))
        if judged is new:
            self._bodies[at][body["id"]] = {name: body[name] for name in ("id", *MEANING) if name in body}
        real = body.get("parent_id")
        body |= {"parent_id": await self._real(model, real)} if real else {}
        await self._chat(model, body, judged, caller, api, key=self._key(key))

    def _message(self, at: int, parent: int | str | None, when_busy: str) -> dict[str, Any]:
        model, number = self.models[at], next(self._fresh)
        body: dict[str, Any] = {"id": f"m{number}", "content": f"[{model.name}] {number}", "when_busy": when_busy}
        if isinstance(parent, int) and model.messages:
            body["parent_id"] = sorted(model.messages)[parent % len(model.messages)]
        elif parent == "unknown":
            body["parent_id"] = "nowhere"
        return body

    async def resume(self, at: int, *, which: str | int = "pending", outcome: str = "success", plan: tuple[str, ...] = (),
                     revision: int | None = None, turn: str = "", caller: str = OWNER, api: int = 0, behind: bool = False,
                     key: bool = False) -> None:  # fmt: skip
        model = self.models[at]
        turn_id = self._turn_id(model, turn)["turn_id"]
        if behind:
            model.release()
        call_id = self._call(model, which)
        body: dict[str, Any] = {"tool_call_id": call_id, "tool_result": call_id, "tool_outcome": outcome}
        body |= {"turn_id": await self._real_turn(model, turn_id)} | self._expected(model, revision)
        new = Turn(turn_id, "continuation", "", plan, result=(call_id, outcome))
        judged = self._judge(lambda: model.resume(caller, new, body.get("expected_revision")))
        await self._chat(model, body, judged, caller, api, behind=behind, key=self._key(key))

    async def retry(self, at: int, *, which: int | str = "last", plan: tuple[str, ...] = (), revision: int | None = None,
                    caller: str = OWNER, api: int = 0, key: bool = False) -> None:  # fmt: skip
        model = self.models[at]
        known = [turn.id for turn in model.turns.values() if turn.number]
        turn_id = "t-none" if which == "unknown" or not known else known[which] if isinstance(which, int) else self._last(model, known)
        expected = self._expected(model, revision)
        judged = self._judge(lambda: model.retry(caller, turn_id, plan, expected.get("expected_revision")))
        real = await self._real_turn(model, turn_id)
        await self._chat(model, expected, judged, caller, api, path=f"/sessions/{model.name}/turns/{real}/retry", key=self._key(key))

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

    async def cancel(self, at: int, *, which: str | int | None = None, caller: str = OWNER, api: int = 0, key: bool = False) -> None:
        model = self.models[at]
        turn_id = self._turn_named(model, which)
        judged = self._judge(lambda: model.cancel(caller, turn_id))
        self._expect(model)
        body = {} if turn_id is None else {"turn_id": await self._real_turn(model, turn_id)}
        path, named = f"/sessions/{model.name}/cancel", self._key(key)
        answer = await self._post(path, body, caller, api, named)
        if isinstance(judged, Refused):
            self._refused(answer, judged)
        else:
            assert answer.json() == {"cancel_requested": judged[0], "turn_id": judged[1]}, (answer.json(), judged)
            self._keep(model, named, path, body, answer.json())

    async def repair(self, at: int, *, revision: int | None = None, caller: str = OWNER, api: int = 0, behind: bool = False,
                     key: bool = False) -> None:  # fmt: skip
        model = self.models[at]
        if behind:
            model.release()
        expected = self._expected(model, revision)
        judged = self._judge(lambda: model.repair(caller, expected.get("expected_revision")))
        path, named = f"/sessions/{model.name}/repair", self._key(key)
        posted = self._post(path, expected, caller, api, named)
        answer = await (self._behind(model, posted) if behind else posted)
        if isinstance(judged, Refused):
            self._refused(answer, judged)
        else:
            wanted = {"session_id": model.name, "cleared_pending": judged[0], "repaired_calls": judged[1]}
            assert answer.json() == wanted, (answer.json(), wanted)
            self._keep(model, named, path, expected, answer.json())

    async def again(self, at: int, *, which: int = 0, other: bool = False, api: int = 0) -> None:
        """The same request under the same key, or another one."""
        model = self.models[at]
        if not self.kept[at]:
            return
        kept = self.kept[at][which % len(self.kept[at])]
        body = kept.body | ({"expected_revision": 10**6} if other and not kept.path.endswith("/cancel") else {})
        body |= {"turn_id": "another"} if other and kept.path.endswith("/cancel") else {}
        if other:
            self._refused(await self._post(kept.path, body, OWNER, api, kept.key), Refused("duplicate_id"))
        elif isinstance(kept.judged, Turn):
            turn_id = await self._real_turn(model, kept.judged.id)
            runs = kept.judged.state in ("running", "waits")
            answer = await self._post(kept.path + ("?wait=false" if runs else ""), body, OWNER, api, kept.key)
            assert answer.status_code == (202 if runs else 200) and answer.json().get("turn_id") == turn_id, answer.text
            assert runs or ended_of(answer.json()) == model_ended(kept.judged), (ended_of(answer.json()), model_ended(kept.judged))
        else:
            assert (await self._post(kept.path, body, OWNER, api, kept.key)).json() == kept.judged

    async def steer(self, at: int, *, profile: str | None = None, repeat: tuple[int, bool] | None = None, caller: str = OWNER,
                    revision: int | None = None) -> None:  # fmt: skip
        model, number = self.models[at], next(self._fresh)
        new = Steering(f"g{number}", f"[{model.name}] steer {number}", profile)
        if repeat and model.steering:
            known = list(model.steering.values())[repeat[0] % len(model.steering)]
            new = Steering(known.id, known.content + ("" if repeat[1] else " else"), known.profile)
        turn_id, expected = f"ts{number}", self._expected(model, revision)
        judged = self._judge(lambda: model.steer(caller, new, turn_id, expected.get("expected_revision")))
        self._expect(model)
        asked = SteerInput(id=new.id, content=new.content, profile=new.profile, turn_id=turn_id, **expected)
        receipt = await self._update(model, "steer", asked, caller, judged)
        if not isinstance(judged, Refused):
            assert (receipt.delivery, receipt.turn_id) == judged, (receipt, judged)

    async def card(self, at: int, *, words: bool = True, repeat: tuple[int, bool] | None = None, caller: str = OWNER,
                   revision: int | None = None, profile: str | None = None, subject: str | None = None) -> None:  # fmt: skip
        model, number = self.models[at], next(self._fresh)
        card_id, content = f"k{number}", f"[{model.name}] card {number}" if words else ""
        cards = [one for one in model.messages.values() if one.role == "host"]
        if repeat and cards:
            known = cards[repeat[0] % len(cards)]
            card_id, content = known.id, known.content + ("" if repeat[1] else "else")
        expected = self._expected(model, revision)
        judged = self._judge(lambda: model.card(caller, card_id, content, content, (profile, subject), expected.get("expected_revision")))
        asked = CardInput(
            id=card_id, content=content, segments=[COMPONENT], digest=_digest(content), profile=profile, subject=subject, **expected
        )
        await self._update(model, "card", asked, caller, judged)

    async def move(self, at: int, *, leaf: int | str = 0, caller: str = OWNER, revision: int | None = None) -> None:
        model = self.models[at]
        target = "nowhere" if leaf == "unknown" or not model.messages else sorted(model.messages)[int(leaf) % len(model.messages)]
        expected = self._expected(model, revision)
        judged = self._judge(lambda: model.move(caller, target, expected.get("expected_revision")))
        real = await self._real(model, target)
        await self._update(model, "amend", AmendInput(fields=("active_leaf_id",), active_leaf_id=real, **expected), caller, judged)

    async def delete(self, at: int, *, caller: str = OWNER, revision: int | None = None) -> None:
        model = self.models[at]
        expected = self._expected(model, revision)
        judged = self._judge(lambda: model.delete(caller, expected.get("expected_revision")))
        await self._update(model, "close", CloseInput(**expected), caller, judged)
        if not isinstance(judged, Refused):
            self._forget(at)

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
