"""What happens to sessions beside the inputs of hosts: signals, time, restarts, rollovers."""

from contextlib import suppress
from typing import Any

from temporalio.service import RPCError

from tests.model.records import HOUR, Refused, Steering, Turn
from tests.model.sending import OWNER, Pairs
from workflows.contracts.inputs import CancelInput, ContinuationInput, Input, MessageInput, SteerInput

SOON_AFTER = 180.0
"""Seconds."""


class Upsets(Pairs):
    """Each is a step of an example, as the inputs are."""

    async def roll(self, at: int) -> None:
        if self.models[at].owner:
            await self.world.system.workflow(self.models[at].name).signal("roll")

    async def restart(self, at: int) -> None:
        await self.world.restart({model.name: model.begin_again(model.live) for model in self.models if model.live})

    async def jump(self, at: int, *, hours: float) -> None:
        """Time passes: not while a model is held, whose activity would hold the time. A deadline is let pass before the time goes on: whether
        the server dates what follows from it by the deadline or by the end of its jump is not said.
        """
        model, left = self.models[at], hours * HOUR
        while left > 0 and model.owner is not None and not model.live:
            piece = min(left, model.until_deadline() + SOON_AFTER)
            left -= piece
            lives = model.jump(piece)
            self._expect(model)
            with suppress(RPCError):  # a session that is over takes its workflow's history with it
                await self.world.skipper.fast_forward(self.world.system.workflow(model.name), piece)
            if not lives:
                self._forget(at)
            if left > 0:
                await self._compare(at, 0)

    async def signal(self, at: int, *, name: str, caller: str = OWNER, plan: tuple[str, ...] = (), which: str = "pending") -> None:
        """An input by Temporal's own door: what an update would refuse is recorded."""
        model = self.models[at]
        if model.owner is None or (model.live and name in ("continuation", "host_result")):
            return
        asked = getattr(self, f"_{name}_signal")(model, next(self._fresh), caller, plan, which)
        self._expect(model)
        system = self.world.system
        asked = asked.model_copy(update={"tenant": system.tenant, "principal": caller})
        await system.workflow(model.name).signal(name, asked.model_dump(mode="json"))

    def _note(self, model: Any, kind: str, judged: Any) -> None:
        if isinstance(judged, Refused):
            model.refusals.append((kind, judged.code))

    def _message_signal(self, model: Any, number: int, caller: str, plan: tuple[str, ...], which: str) -> Input:
        asked = MessageInput(id=f"m{number}", turn_id=f"t{number}", content=f"[{model.name}] {number}")
        new = Turn(f"t{number}", "message", "", plan, asked.content, None, asked.id)
        self._note(model, "message", self._judge(lambda: model.send(caller, new, ("signal", number), "interrupt", None)))
        return asked

    def _continuation_signal(self, model: Any, number: int, caller: str, plan: tuple[str, ...], which: str) -> Input:
        return self._result(model, number, caller, plan, which, "continuation")

    def _host_result_signal(self, model: Any, number: int, caller: str, plan: tuple[str, ...], which: str) -> Input:
        return self._result(model, number, caller, plan, which, "host_result")

    def _result(self, model: Any, number: int, caller: str, plan: tuple[str, ...], which: str, kind: str) -> Input:
        # Who comes past the api comes past the rows: only results of hosts are in the workflow's own memory.
        asked = (call.id for call in model.calls.values() if call.tool != "add")
        call_id = model.batch[0] if which == "pending" and model.batch else next(asked, "c-none")
        new = Turn(f"t{number}", "continuation", "", plan, result=(call_id, "success"))
        self._note(model, kind, self._judge(lambda: model.resume(caller, new, None)))
        return ContinuationInput(tool_call_id=call_id, tool_result=call_id, turn_id=f"t{number}")

    def _steer_signal(self, model: Any, number: int, caller: str, plan: tuple[str, ...], which: str) -> Input:
        asked = SteerInput(id=f"g{number}", content=f"[{model.name}] steer {number}", turn_id=f"ts{number}")
        new = Steering(asked.id, asked.content, None)
        self._note(model, "steer", self._judge(lambda: model.steer(caller, new, f"ts{number}")))
        return asked

    def _cancel_signal(self, model: Any, number: int, caller: str, plan: tuple[str, ...], which: str) -> Input:
        self._note(model, "cancel", self._judge(lambda: model.cancel(caller, None)))
        return CancelInput()
