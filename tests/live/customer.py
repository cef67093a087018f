"""A host application and its user: talks to one session over HTTP, keeps every event, and writes the transcript."""

import time
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.http.sse import Frame, opened, shown_text
from tests.live.transcript import Transcript

PATIENCE_SECONDS = 300.0


@dataclass
class Turn:
    """A turn as its reader saw it."""

    frames: list[Frame] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The words that were streamed, as a screen shows them in the end."""
        return "".join(shown_text(self.frames).values())

    @property
    def types(self) -> list[str]:
        return [frame.type for frame in self.frames]

    @property
    def pieces(self) -> int:
        return self.types.count("text.delta")

    @property
    def answer(self) -> dict[str, Any]:
        """The turn's final body."""
        (final,) = [frame.own for frame in self.frames if frame.type == "turn.final"]
        return final


class Customer:
    """One session at one API."""

    def __init__(self, url: str, session_id: str, transcript: Transcript) -> None:
        self._url = url
        self.session_id = session_id
        self._transcript = transcript
        self.turns: list[Turn] = []

    async def says(self, text: str) -> Turn:
        """A message, and the streamed turn that it leads to."""
        self._transcript.said("Customer", text)
        return await self._turn({"content": text})

    async def answers(self, call_id: str, result: dict[str, Any]) -> Turn:
        """The host's result of an action, and the turn that goes on with it."""
        self._transcript.told("The host application answers the action:")
        self._transcript.showed({"tool_call_id": call_id, "tool_result": result})
        return await self._turn({"tool_call_id": call_id, "tool_result": result})

    async def get(self, path: str = "") -> Any:
        """What a read of the session says."""
        async with self._client() as http:
            answer = await http.get(f"/api/sessions/{self.session_id}{path}")
            assert answer.status_code == 200, answer.text
            return answer.json()

    async def rows(self) -> list[dict[str, Any]]:
        """Its messages."""
        rows: list[dict[str, Any]] = (await self.get("/messages"))["messages"]
        return rows

    async def replay(self) -> list[Turn]:
        """Every turn, read again from the session's first event."""
        turns = [Turn()]
        async with self._client() as http, opened(http, f"/api/sessions/{self.session_id}/events") as (_, frames):
            async for frame in frames:
                turns[-1].frames.append(frame)
                if frame.type == "turn.completed":
                    if len(turns) == len(self.turns):
                        break
                    turns.append(Turn())
        return turns

    async def _turn(self, body: dict[str, Any]) -> Turn:
        turn, began = Turn(), time.monotonic()
        self.turns.append(turn)
        request = {"session_id": self.session_id, **body}
        async with self._client() as http, opened(http, "/api/chat/stream", method="POST", json=request) as (response, frames):
            assert response.status_code == 200, await response.aread()
            async for frame in frames:
                turn.frames.append(frame)
        assert turn.types[-1] == "turn.completed"
        if turn.text:
            self._transcript.said("Assistant", turn.text, f"{turn.pieces} pieces, {time.monotonic() - began:.1f} s")
        if (pending := turn.answer["pending_tool_call"]) is not None:
            self._transcript.told("The assistant asks the host application to act, and the session waits:")
            self._transcript.showed({key: pending[key] for key in ("tool_name", "call_id", "arguments")})
        return turn

    def _client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self._url, timeout=PATIENCE_SECONDS)
