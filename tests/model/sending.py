"""Sends one input to a real session and compares what it is answered, and what is then shown, with the reference model."""

import asyncio
import itertools
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import httpx
from temporalio.service import RPCError
from temporalio.testing import TimeSkipper

from activities.db.reads import Reads
from api.sending import Workflows
from api.turns import said
from tests.everything import session_of, told, verifying
from tests.model.comparing import ended_of, model_ended, shown_by, shown_in
from tests.model.director import Director
from tests.model.invariants import check_rows
from tests.model.records import DEFAULT, HOUR, LIFE, UNNAMED, Refused, Turn
from tests.model.reference import Session
from tests.system import System, running_system
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import Input

OWNER, STRANGER = "alice", "bob"
Step = tuple[int, str, dict[str, Any]]
_numbers = itertools.count(1)


class World:
    """A running system that outlives examples. `played` counts its steps by their kind."""

    def __init__(self, database_url: str, address: str) -> None:
        self._where = (database_url, address)
        self._stack = AsyncExitStack()
        self.director = Director()
        self.system: System
        self.played: Counter[str] = Counter()

    @property
    def steps(self) -> int:
        """How many steps were played."""
        return self.played.total()

    async def start(self, like: System | None = None) -> None:
        settings: dict[str, Any] = {"profile": DEFAULT, "session_ttl_hours": LIFE / HOUR, "worker_shutdown_seconds": 0.0}
        self.system = await self._stack.enter_async_context(running_system(*self._where, self.director, apis=2, like=like, **settings))
        self.skipper = TimeSkipper(self.system.temporal)
        self.verifier = await self._stack.enter_async_context(verifying(self.system, self._where[0]))

    async def stop(self) -> None:
        await self._stack.aclose()

    async def verify(self, session: str) -> None:
        """Its rows are what its histories say (R69)."""
        there = "select true from sessions where tenant = $1 and session_id = $2"
        if await self.system.conn.fetchval(there, self.system.tenant, session):
            verdict = await self.verifier.verify(await session_of(self.system, session))
            assert (verdict.state, told(verdict), verdict.notes) == ("same", [], []), (session, verdict.state, told(verdict), verdict.notes)

    async def restart(self, prompts: dict[str, tuple[str, ...]]) -> None:
        """Every process goes and comes back. What was being asked of a session's model is asked again, with these words of people."""
        self.director.expect_again(prompts)
        held = self.director.held
        await self.stop()
        self._stack = AsyncExitStack()
        await self.start(like=self.system)
        await self.system.until(lambda: self.director.held == held)


@dataclass
class Kept:
    """A write under an idempotency key: it may come again. `judged` is a turn, or the answer that it got."""

    key: str
    path: str
    body: dict[str, Any]
    judged: Turn | dict[str, Any]


class Pairs:
    """Sessions of an example, each real and modelled."""

    def __init__(self, world: World, sessions: int = 2) -> None:
        tag = f"{next(_numbers)}-{uuid4().hex[:6]}"
        self.world = world
        self.models = [Session(f"s{tag}-{place}") for place in range(sessions)]
        self.played: list[Step] = []
        self._bodies: list[dict[str, dict[str, Any]]] = [{} for _ in range(sessions)]
        self.kept: list[list[Kept]] = [[] for _ in range(sessions)]
        self._fresh = itertools.count(1)

    async def _real(self, model: Session, name: str) -> str:
        if not name.startswith("@"):
            return name
        turn_id = await self._real_turn(model, name[1:])
        found = await self.world.system.conn.fetchval(
            "select m.id from messages m join sessions s using (session_uid) "
            "where s.tenant = $1 and s.session_id = $2 and m.turn_id = $3 and m.role = 'assistant'",
            self.world.system.tenant, model.name, turn_id,
        )  # fmt: skip
        assert isinstance(found, str), f"there is no message {name}"
        return found

    async def _real_turn(self, model: Session, turn_id: str) -> str:
        if not turn_id.startswith(UNNAMED):
            return turn_id
        found = await self.world.system.conn.fetchval(
            "select t.turn_id from turns t join sessions s using (session_uid) where s.tenant = $1 and s.session_id = $2 and t.number = $3",
            self.world.system.tenant, model.name, model.turns[turn_id].number,
        )  # fmt: skip
        assert isinstance(found, str), f"there is no turn {turn_id}"
        return found

    @staticmethod
    def _judge(act: Any) -> Any:
        try:
            return act()
        except Refused as refused:
            return refused

    def _expect(self, model: Session) -> None:
        moves, model.moves = model.moves, []
        self.world.director.expect(model.name, moves)

    async def _post(self, path: str, body: dict[str, Any], caller: str, api: int, key: str = "") -> httpx.Response:
        headers = {"x-test-principal": caller} | ({"idempotency-key": key} if key else {})
        return await self.world.system.post(path, body, api=api, headers=headers)

    def _key(self, wanted: bool) -> str:
        return f"{self.models[0].name}-{next(self._fresh)}" if wanted else ""

    def _keep(self, model: Session, key: str, path: str, body: dict[str, Any], judged: Any) -> None:
        if key and not isinstance(judged, Refused):
            self.kept[self.models.index(model)].append(Kept(key, path, body, judged))

    def _forget(self, at: int) -> None:
        """The session is over; its id is free."""
        self.models[at], self._bodies[at], self.kept[at] = Session(self.models[at].name), {}, []

    async def _behind(self, model: Session, posted: Any) -> httpx.Response:
        """Sends while a turn runs, then lets that end (R73)."""
        self._expect(model)
        task = asyncio.ensure_future(posted)
        await asyncio.sleep(0.03)
        self.world.director.release(model.name)
        return await task  # type: ignore[no-any-return]

    async def _chat(self, model: Session, body: dict[str, Any], judged: Any, caller: str, api: int, *,
                    path: str = "/chat", behind: bool = False, key: str = "") -> None:  # fmt: skip
        goes_on = isinstance(judged, Turn) and judged.state in ("running", "waits")
        body = {"session_id": model.name, **body} if path == "/chat" else body
        self._expect(model)
        self._keep(model, key, path, body, judged)
        posted = self._post(path + ("?wait=false" if goes_on and not behind else ""), body, caller, api, key)
        answer = await (self._behind(model, posted) if behind else posted)
        if isinstance(judged, Refused):
            self._refused(answer, judged)
        elif goes_on:
            assert (answer.status_code, answer.json().get("turn_id")) == (202, judged.id), answer.text
        else:
            assert answer.status_code == 200, (answer.text, judged)
            assert ended_of(answer.json()) == model_ended(judged), (ended_of(answer.json()), model_ended(judged))

    @staticmethod
    def _refused(answer: httpx.Response, refused: Refused) -> None:
        problem = answer.json()
        found = (answer.status_code, problem.get("code"), {name: problem.get(name) for name in refused.facts})
        wanted = (404 if refused.code == "not_found" else 409, refused.code, refused.facts)
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
            try:
                found[0] = await shown_by(self.world.system, model, model.owner or OWNER, api)
            except (AssertionError, RPCError):  # the session ended between two reads
                return False
            return found[0] == wanted and director.holds(model.name) == (model.live is not None)

        try:
            await self.world.system.until(same)
        except TimeoutError:
            raise AssertionError(_difference(found[0], wanted, director.holds(model.name))) from None
        assert not director.faults, director.faults
        assert not director.coming[model.name], f"requests that did not come: {director.coming[model.name]}"
        await check_rows(self.world.system, model.name, quiet=False)


def _difference(found: dict[str, Any], wanted: dict[str, Any], holds: bool) -> str:
    lines = [f"{name}:\n  real  {found.get(name)}\n  model {wanted.get(name)}" for name in wanted if found.get(name) != wanted[name]]
    return "\n".join(lines) or f"shown alike: {found == wanted}; the model stands at its gate: {holds}"
