"""Streamed text on its way to readers: coalesced, numbered, kept in Postgres until the step's segments are."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal

from activities.db.pool import Database
from activities.db.session_tx import LivePiece, now_text, sql
from workflows.contracts.errors import OutlastError, ServiceUnavailable

COALESCE_SECONDS = 0.025
"""Pieces that follow within this time of one that was sent go out together; the first of a burst goes at once."""


class Superseded(OutlastError):
    """The step was begun again by another run of it, or its turn is over: this run has nothing more to write."""


@dataclass
class Segment:
    """One display segment of the step, as streamed so far."""

    kind: Literal["thinking", "text", "tool_group"]
    text: str = ""
    sent: int = 0


@dataclass
class LiveText:
    """The text of one run of a step. `first_segment` is the place of its first segment in the assistant message, `began_after` the newest
    durable event when the run began.

    Nothing that was given to it is lost: what can't be written while Postgres is away goes out with the next piece. Where the answer to a
    write was lost, the rows say whether it counts. A run that was superseded writes nothing (`turns.run` fences it), so that no two runs
    ever mix their characters.
    """

    db: Database
    session_uid: str
    turn_id: str
    attempt: int
    run: int
    first_segment: int
    began_after: int
    segments: list[Segment] = field(default_factory=list)
    first_text_at: str = ""
    _superseded: bool = False
    _unsure: bool = False
    _part: int | None = None
    _flusher: asyncio.Task[None] | None = None
    _pausing: bool = False
    _settling: bool = False
    _last_sent: float = 0.0

    async def piece(self, part: int, kind: Literal["thinking", "text"], text: str) -> None:
        """More text of the model's response part number `part`. Raises Superseded once the rows said so."""
        if self._superseded:
            raise Superseded
        if self._part != part or not self.segments or self.segments[-1].kind != kind:
            self.segments.append(Segment(kind))
            self._part = part
        self.segments[-1].text += text
        self.first_text_at = self.first_text_at or now_text()
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush_soon())

    def group(self) -> int:
        """The place, among the step's segments, of the tool group that a call belongs to now."""
        if not self.segments or self.segments[-1].kind != "tool_group":
            self.segments.append(Segment("tool_group"))
            self._part = None
        return len(self.segments) - 1

    async def _flush_soon(self) -> None:
        """Goes on until nothing is unsent: a piece that comes while another is being written must not wait for a third one."""
        loop = asyncio.get_running_loop()
        while self.unsent() and not self._settling:
            self._pausing = True
            await asyncio.sleep(max(0.0, self._last_sent + COALESCE_SECONDS - loop.time()))
            self._pausing = False
            try:
                await self._flush()
            except (ServiceUnavailable, Superseded):
                return
            self._last_sent = loop.time()

    async def settle(self) -> None:
        """Waits for a piece that is being written; what is unsent stays so, and goes out with the closing transaction."""
        if self._flusher and not self._flusher.done():
            if self._pausing:
                self._flusher.cancel()
            self._settling = True
            await asyncio.gather(self._flusher, return_exceptions=True)
            self._settling = False

    async def finish(self) -> None:
        """Settles, and knows then what readers were given. Raises ServiceUnavailable, and Superseded."""
        await self.settle()
        if self._superseded:
            raise Superseded
        await self._make_sure()

    async def flush(self) -> None:
        """Writes everything now. Raises ServiceUnavailable, and Superseded."""
        await self.settle()
        await self._flush()

    async def _flush(self) -> None:
        await self._make_sure()
        async with self.db.connection() as conn:
            for piece in self.unsent():
                self._unsure = True
                placed = await sql.stream_delta(
                    conn,
                    session_uid=self.session_uid,
                    turn_id=self.turn_id,
                    attempt=self.attempt,
                    run=self.run,
                    segment=piece.segment,
                    start_offset=piece.offset,
                    kind=piece.kind,
                    text=piece.text,
                    at=now_text(),
                )
                self._unsure = False
                if placed is None:
                    self._superseded = True
                    raise Superseded
                self.segments[piece.segment - self.first_segment].sent += len(piece.text)

    async def _make_sure(self) -> None:
        """After a write whose answer was lost: reads how far readers were given each segment. Raises ServiceUnavailable."""
        if not self._unsure:
            return
        async with self.db.transaction() as conn:
            await sql.take_session(conn, session_uid=self.session_uid)  # behind that write, if Postgres is still at it
            rows = [row async for row in sql.streamed_since(conn, session_uid=self.session_uid, after_seq=self.began_after)]
        for row in rows:
            place = row["segment"] - self.first_segment
            if 0 <= place < len(self.segments):
                self.segments[place].sent = row["ends"]
        self._unsure = False

    def unsent(self) -> list[LivePiece]:
        """What no reader has been given yet."""
        return [
            LivePiece(self.first_segment + number, segment.kind, segment.sent, text)
            for number, segment in enumerate(self.segments)
            if (text := segment.text[segment.sent :])
        ]
