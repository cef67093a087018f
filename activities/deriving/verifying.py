"""Holds a session's rows against its histories, and puts them right from there."""

import asyncio
from dataclasses import dataclass, field
from typing import Literal
from uuid import UUID

from activities.db.encryption import PayloadUnreadable
from activities.db.shadow import Difference, Shadow, owned
from activities.deriving.histories import Histories, Story
from activities.deriving.order import beginnings_and_ends
from activities.deriving.playing import Player, Unplayable
from activities.deriving.seeding import base_of, made_by, seed
from activities.llm.translate import LIBRARY
from settings import Settings
from workflows.contracts.errors import ServiceUnavailable, words_of
from workflows.model.session import SessionRef

CHECKS = ("check_session", "check_tree", "check_texts", "check_calls", "check_turns")

TRIES = 5
PAUSE_SECONDS = 0.4
"""A session that something is being written to is looked at again after this."""


@dataclass
class Verdict:
    """What was found of a session. `busy`: something was being written each time that it was looked at, and it was not compared.

    `rebuilt`: the differences were there and are no more. `unreadable`: its history is encrypted, and the `problem` is that no key opens it.
    `notes` say what could not be held against a history.
    """

    session: SessionRef
    state: Literal["same", "differs", "busy", "gone", "rebuilt", "unreadable"] = "same"
    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def passing(self) -> bool:
        """Whether it is worth looking again in a moment: busy, and nothing is known that keeps it so."""
        return self.state == "busy" and not self.notes


class Verifier:
    """Looks at one session after the other. Raises ServiceUnavailable where Postgres or Temporal is lost."""

    def __init__(self, shadow: Shadow, histories: Histories, settings: Settings) -> None:
        self._shadow = shadow
        self._histories = histories
        self._limit = settings.tool_text_limit
        self._version = ""

    async def verify(self, session: SessionRef) -> Verdict:
        """What the rows have that they should not have, or lack. Changes nothing, and keeps nobody waiting."""
        verdict = Verdict(session, "busy")
        for attempt in range(TRIES):
            await asyncio.sleep(PAUSE_SECONDS * attempt)
            async with self._shadow.session(keep=False):
                verdict = await self._look(session)
            if not verdict.passing and (verdict.state == "busy" or await self._is_as_it_was(session, verdict)):
                return verdict
        return Verdict(session, "busy", notes=["something was being written to it whenever it was looked at"])

    async def rebuild(self, session: SessionRef) -> Verdict:
        """Puts the rows right where they differ. Who writes to the session waits meanwhile; one that a turn is running in is left alone."""
        for attempt in range(TRIES):
            await asyncio.sleep(PAUSE_SECONDS * attempt)
            async with self._shadow.session(keep=True):
                await owned.lock_actual(self._shadow.conn, session_uid=session.session_uid)
                verdict = await self._look(session)
                if verdict.state == "differs" and await self._put_right(session, verdict):
                    verdict.state = "rebuilt"
            if not verdict.passing:
                return verdict
        return Verdict(session, "busy", notes=["a turn is running, or something is being written; try again once it is idle"])

    async def _put_right(self, session: SessionRef, verdict: Verdict) -> bool:
        """False if that can't be: a history that can't be played says nothing of what the rows should be."""
        uid = UUID(session.session_uid)
        if any(one.what == UNPLAYABLE for one in verdict.differences):
            return False
        derivable = [one for one in verdict.differences if one.relation]
        if derivable:
            await self._shadow.replace(uid, derivable)
        if gap := await self._shadow.close_gap(uid):
            verdict.notes.append(
                f"events up to {gap} were missing and can't be derived: the stream begins behind them, readers from before are told"
            )
        left = await self._checked(uid)
        verdict.notes += [f"{one.what} ({one.row}) is still there: no history says otherwise" for one in left]
        return not left

    async def _look(self, session: SessionRef) -> Verdict:
        uid = UUID(session.session_uid)
        row = await owned.actual_session(self._shadow.conn, session_uid=uid)
        if row is None:
            return Verdict(session, "gone")
        by_themselves = await self._checked(uid)
        self._version = row["version"]
        try:
            story = await self._histories.of(session)
        except ServiceUnavailable:
            raise
        except PayloadUnreadable as error:
            return Verdict(session, "unreadable", by_themselves, problem=str(error))
        except Exception as error:
            problem = Difference(UNPLAYABLE, found=words_of(error))
            return Verdict(session, "differs", [*by_themselves, problem])
        if story.torn:
            return Verdict(session, "busy", notes=[CUT_SHORT.format(how=story.torn)])
        if story.under_way or row["streaming"]:
            return Verdict(session, "busy")
        verdict = Verdict(session, differences=by_themselves)
        if not story.runs:
            verdict.notes.append("no history of it is retained: its rows are kept, and can't be derived")
        else:
            await self._compare(session, story, verdict)
        verdict.state = "differs" if verdict.differences else "same"
        return verdict

    async def _compare(self, session: SessionRef, story: Story, verdict: Verdict) -> None:
        try:
            await self._derive(session, story, verdict)
        except Unplayable as problem:
            verdict.differences.append(Difference(UNPLAYABLE, found=str(problem)))
            return
        verdict.differences += await self._shadow.differences(UUID(session.session_uid), LIBRARY)

    async def _derive(self, session: SessionRef, story: Story, verdict: Verdict) -> None:
        made = made_by(story)
        if (head := base_of(story)) is not None:
            await seed(self._shadow, session.session_uid, story, head, made)
            verdict.notes.append(
                f"what came before {story.runs[0].began_at:%Y-%m-%d %H:%M:%S} (up to turn {head.turn_number}) is in no retained history: "
                "it is kept, and can't be derived"
            )
            verdict.notes += [f"turn {turn_id} began before that and was tried again: it is kept" for turn_id in sorted(made.before)]
        else:
            made.before.clear()
        player = Player(self._shadow, session, self._limit)
        for run in story.runs:
            for what, write in beginnings_and_ends(run):
                if made.plays(write):
                    await (player.begin(write) if what == "begin" else player.end(write))

    async def _checked(self, uid: UUID) -> list[Difference]:
        return [
            Difference(row["what"], row["expected"] or "", row["found"] or "", place=row["row"])
            for check in CHECKS
            async for row in getattr(owned, check)(self._shadow.conn, session_uid=uid)
        ]

    async def _is_as_it_was(self, session: SessionRef, verdict: Verdict) -> bool:
        """Whether nothing was written since the rows were looked at: only then are they of the same moment as the history."""
        row = await owned.actual_session(self._shadow.conn, session_uid=UUID(session.session_uid))
        return row["version"] == self._version if row is not None else verdict.state == "gone"


UNPLAYABLE = "history that can't be played"

CUT_SHORT = (
    "its workflow was {how} in the middle of a write, whose end no history tells: its next input begins a run that goes on from the rows"
)

__all__ = ["Verdict", "Verifier"]
