"""Drives a real system and the reference model with the same inputs, and compares what both say after each."""

import asyncio
import hashlib
import itertools
from contextlib import AsyncExitStack
from typing import Any
from uuid import uuid4

import httpx

from activities.db.reads import Reads
from api.errors import _REFUSALS
from api.sending import Workflows
from api.turns import said
from tests.model.comparing import ended_of, model_ended, shown_by, shown_in
from tests.model.director import Director
from tests.model.invariants import check_rows
from tests.model.reference import Session
from tests.model.turns import DEFAULT, Refused, Steering, Turn
from tests.system import System, running_system
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import AmendInput, CardInput, CloseInput, Input, SteerInput

OWNER, STRANGER = "alice", "bob"
COMPONENT = {"kind": "component", "type": "note", "data": {}}
Step = tuple[int, str, dict[str, Any]]
_numbers = itertools.count(1)


class World:
    """A running system that outlives examples. `steps` counts what was played."""

    def __init__(self, database_url: str, address: str) -> None:
        self._where = (database_url, address)
        self._stack = AsyncExitStack()
        self.director = Director()
        self.system: System
        self.steps = 0

    async def start(self, like: System | None = None) -> None:
        self.system = await self._stack.enter_async_context(running_system(*self._where, self.director, apis=2, like=like))

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        """Every process goes and comes back."""
        await self.stop()
        self._stack = AsyncExitStack()
        await self.start(like=self.system)


class Example:
    """Some sessions of their own, real and modelled."""

    def __init__(self, world: World, sessions: int = 2) -> None:
        tag = f"{next(_numbers)}-{uuid4().hex[:6]}"
        self.world = world
        self.models = [Session(f"s{tag}-{place}") for place in range(sessions)]
        self.played: list[Step] = []
        self._bodies: list[dict[str, dict[str, Any]]] = [{} for _ in range(sessions)]
        self._fresh = itertools.count(1)

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
        told = (body["content"], body.get("parent_id"), body["when_busy"])
        new = Turn(body["turn_id"], "message", DEFAULT, plan, body["content"], body.get("parent_id"), body["id"])
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
        body = {"tool_call_id": call_id, "tool_result": call_id, "tool_outcome": outcome, "turn_id": turn_id} | self._expected(model, revision)
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
        await self._chat(model, expected, judged, caller, api, path=f"/sessions/{model.name}/turns/{turn_id}/retry")

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
        body = {} if turn_id is None else {"turn_id": turn_id}
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
        await self._update(model, "card", CardInput(id=card_id, content=content, segments=[COMPONENT], digest=_digest(content)), caller, judged)

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

    async def _real(self, model: Session, name: str) -> str:
        if not name.startswith("@"):
            return name
        found = await self.world.system.conn.fetchval(
            "select m.id from messages m join sessions s using (session_uid) "
            "where s.tenant = $1 and s.session_id = $2 and m.turn_id = $3 and m.role = 'assistant'",
            self.world.system.tenant, model.name, name[1:],
        )  # fmt: skip
        assert isinstance(found, str), f"there is no message {name}"
        return found

    # Sending and comparing

    @staticmethod
    def _judge(act: Any) -> Any:
        try:
            return act()
        except Refused as refused:
            return refused

    def _expect(self, model: Session) -> None:
        moves, model.moves = model.moves, []
        self.world.director.expect(model.name, moves)

    async def _post(self, path: str, body: dict[str, Any], caller: str, api: int) -> httpx.Response:
        return await self.world.system.post(path, body, api=api, headers={"x-test-principal": caller})

    async def _behind(self, model: Session, posted: Any) -> httpx.Response:
        """Sends while a turn runs, then lets that end (R73)."""
        self._expect(model)
        task = asyncio.ensure_future(posted)
        await asyncio.sleep(0.03)
        self.world.director.release(model.name)
        return await task  # type: ignore[no-any-return]

    async def _chat(self, model: Session, body: dict[str, Any], judged: Any, caller: str, api: int, *,
                    path: str | None = None, behind: bool = False) -> None:  # fmt: skip
        goes_on = isinstance(judged, Turn) and judged.state in ("running", "waits")
        body = body if path else {"session_id": model.name, **body}
        self._expect(model)
        posted = self._post((path or "/chat") + ("?wait=false" if goes_on and not behind else "?"), body, caller, api)
        answer = await (self._behind(model, posted) if behind else posted)
        if isinstance(judged, Refused):
            self._refused(answer, judged)
        elif goes_on:
            assert (answer.status_code, answer.json()["turn_id"]) == (202, judged.id), answer.text
        else:
            assert answer.status_code == 200, (answer.text, judged)
            assert ended_of(answer.json()) == model_ended(judged), (ended_of(answer.json()), model_ended(judged))

    @staticmethod
    def _refused(answer: httpx.Response, refused: Refused) -> None:
        problem = answer.json()
        found = (answer.status_code, problem.get("code"), {name: problem.get(name) for name in refused.facts})
        wanted = (_REFUSALS[refused.code], refused.code, refused.facts)  # type: ignore[index]
        assert found == wanted, f"answered {found}, expected {wanted}: {problem}"

    async def _update(self, model: Session, name: str, asked: Input, caller: str, judged: Any) -> Any:
        """What has no route: the update, sent as the api sends it."""
        system = self.world.system
        door = await Reads(system.kit.db).door(system.tenant, model.name)
        asked = asked.model_copy(update={"tenant": system.tenant, "principal": caller, "rows": said(door)})
        try:
            receipt = await getattr(Workflows(system.temporal, system.settings.task_queue), name)(model.name, asked)
        except Refusal as refusal:
            assert isinstance(judged, Refused), f"{name} was refused: {refusal.code} {refusal.message}"
            assert refusal.code == judged.code, (refusal.code, judged.code)
            return None
        assert not isinstance(judged, Refused), f"{name} was taken, expected {judged.code}"
        return receipt

    async def _compare(self, at: int, api: int) -> None:
        model, director = self.models[at], self.world.director
        wanted = shown_in(model)
        found: list[dict[str, Any]] = [{}]

        async def same() -> bool:
            found[0] = await shown_by(self.world.system, model.name, model.owner or OWNER, api)
            return found[0] == wanted and director.holds(model.name) == (model.live is not None)

        try:
            await self.world.system.until(same, 4.0)
        except TimeoutError:
            raise AssertionError(_difference(found[0], wanted, director.holds(model.name))) from None
        assert not director.faults, director.faults
        assert not director.coming[model.name], f"requests that did not come: {director.coming[model.name]}"
        await check_rows(self.world.system, model.name, quiet=False)


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()


def _difference(found: dict[str, Any], wanted: dict[str, Any], holds: bool) -> str:
    lines = [f"{name}:\n  real  {found.get(name)}\n  model {wanted.get(name)}" for name in wanted if found.get(name) != wanted[name]]
    return "\n".join(lines) or f"shown alike: {found == wanted}; the model stands at its gate: {holds}"
