"""The model of a system under test: what it does next is decided by session, and it may be held in the middle of a text."""

import asyncio
import json
import re
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall

from tests.model.records import Move
from tests.models import Script

SESSION = re.compile(r"^\[([^\]]+)\]")


def prompts_of(messages: list[ModelMessage]) -> tuple[str, ...]:
    """The words of people in a request, in order."""
    return tuple(str(part.content) for message in messages for part in message.parts if isinstance(part, UserPromptPart))


class Director(Script):
    """Words of people begin with `[session]`. A request that nobody expected, or that shows other words, is a `fault`."""

    def __init__(self) -> None:
        super().__init__([])
        self.coming: dict[str, deque[Move]] = defaultdict(deque)
        self.faults: list[str] = []
        self._held: dict[str, asyncio.Event] = {}
        self._gates: dict[str, Move] = {}

    @property
    def held(self) -> set[str]:
        """The sessions whose models stand at their gates."""
        return set(self._held)

    def expect_again(self, prompts: dict[str, tuple[str, ...]]) -> None:
        """Every process goes away: what stands at its gate will be asked for once more, with these words of people."""
        for session in self._held:
            self.coming[session].appendleft(self._gates[session]._replace(prompts=prompts[session]))

    def expect(self, session: str, moves: list[Move]) -> None:
        """What the next requests of a session are to be, behind those that are expected already."""
        self.coming[session].extend(moves)

    def holds(self, session: str) -> bool:
        """True while the session's model stands at its gate."""
        return session in self._held

    def release(self, session: str) -> None:
        """Opens the session's gate."""
        self._held[session].set()

    async def _stream(self, messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
        prompts = prompts_of(messages)
        found = SESSION.match(prompts[0]) if prompts else None
        session = found[1] if found else "?"
        if not self.coming[session]:
            self.faults.append(f"an unexpected request of {session}: {prompts}")
            yield "unexpected"
            return
        move = self.coming[session].popleft()
        if move.prompts != prompts:
            self.faults.append(f"{session} sent {prompts}, expected {move.prompts}")
        async for piece in self._does(session, move):
            yield piece

    async def _does(self, session: str, move: Move) -> AsyncIterator[Any]:
        if move.what == "empty":
            yield ""
            return
        if move.what == "bad":
            raise ModelHTTPError(400, "scripted")
        if move.calls:
            yield {place: _call(*call) for place, call in enumerate(move.calls, start=1)}
            return
        yield move.text
        if move.what == "boom":
            raise ValueError("a bug of the model's client")
        if move.what == "gate":
            self._gates[session] = move
            held = self._held[session] = asyncio.Event()
            try:
                await held.wait()
            finally:
                if self._held.get(session) is held:
                    del self._held[session]
            yield "rest."


def _call(call_id: str, tool: str) -> DeltaToolCall:
    arguments = {"a": 1, "b": 2} if tool == "add" else {"url": call_id}
    return DeltaToolCall(tool, json.dumps(arguments), tool_call_id=call_id)
