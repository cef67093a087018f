"""Reads server-sent events the way a careful client does."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
from httpx_sse import EventSource


@dataclass(frozen=True)
class Frame:
    id: str
    type: str
    data: dict[str, Any]

    @property
    def own(self) -> dict[str, Any]:
        """The members that belong to the event itself."""
        return {key: value for key, value in self.data.items() if key not in ("type", "session_id", "turn_id", "seq", "at")}


@asynccontextmanager
async def opened(
    client: httpx.AsyncClient, url: str, *, method: str = "GET", **request: Any
) -> AsyncIterator[tuple[httpx.Response, AsyncIterator[Frame]]]:
    """A stream and its frames. Leaving the block disconnects."""
    async with client.stream(method, url, **request) as response:
        yield response, _frames(response)


async def _frames(response: httpx.Response) -> AsyncIterator[Frame]:
    async for event in EventSource(response).aiter_sse():
        if event.event != "message" or event.data:
            frame = Frame(event.id, event.event, json.loads(event.data))
            assert frame.data["type"] == frame.type
            yield frame


async def take(client: httpx.AsyncClient, url: str, count: int, **headers: str) -> list[Frame]:
    """The first `count` frames from a URL."""
    async with opened(client, url, headers=headers) as (response, frames):
        assert response.status_code == 200, await response.aread()
        return [await anext(frames) for _ in range(count)]


async def until_turn_ends(client: httpx.AsyncClient, url: str, **headers: str) -> list[Frame]:
    """Every frame of a stream that ends by itself after a `turn.completed`."""
    async with opened(client, url, headers=headers) as (response, frames):
        assert response.status_code == 200, await response.aread()
        return [frame async for frame in frames]


def shown_text(frames: list[Frame]) -> dict[int, str]:
    """The text of each segment as a client that applies offsets and truncations has it in the end."""
    texts: dict[int, str] = {}
    for frame in frames:
        if frame.type == "text.delta":
            text = texts.get(frame.data["segment"], "")
            assert len(text) == frame.data["offset"], (frame, text)
            texts[frame.data["segment"]] = text + frame.data["text"]
        elif frame.type == "step.restarted":
            for cut in frame.data["segments"]:
                texts[cut["segment"]] = texts.get(cut["segment"], "")[: cut["offset"]]
    return texts


def told(frames: Sequence[Frame]) -> list[tuple[Any, ...]]:
    """What a reader was told, adjacent deltas of a segment joined."""
    found: list[tuple[Any, ...]] = []
    for frame in frames:
        if not frame.type.endswith(".delta"):
            found.append((frame.type, frame.id, frame.data["turn_id"], frame.own))
            continue
        text, offset, key = frame.data["text"], frame.data["offset"], (frame.type, frame.data["turn_id"], frame.data["segment"])
        if found and found[-1][0] == key and found[-1][1] + len(found[-1][2]) == offset:
            found[-1] = (key, found[-1][1], found[-1][2] + text)
        else:
            found.append((key, offset, text))
    return found
