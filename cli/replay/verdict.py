"""What replaying one history showed."""

import re
from typing import Literal

from pydantic import BaseModel

from activities.db.client import words_of_core

_PARTED = re.compile(r"HistoryEvent\(id: (?P<event>\d+), (?P<type>\w+)\)")

Kind = Literal["same", "skipped", "erased", "differs", "failed", "unknown"]
"""`same`: code and history agree. `skipped`: no worker has completed a task of the run, so there is nothing to compare, and neither
harm nor proof in it. `erased`: the run's session was, and payloads that the replay needs are gone with it; no harm or proof either. `differs`: the code would have done something else (nondeterminism). `failed`: the replay came to
no end, because a payload can't be read or it took too long, say. `unknown`: no workflow of this release has the history's type, or it is no history."""


PROVES_NOTHING: tuple[Kind, ...] = ("skipped", "erased")


class Verdict(BaseModel):
    """The outcome for one history. `seconds` is the time of the replay itself, `event` the first one where code and history part."""

    source: str
    workflow_type: str
    workflow_id: str
    run_id: str = ""
    events: int = 0
    seconds: float = 0.0
    kind: Kind
    event: int | None = None
    event_type: str = ""
    detail: str = ""

    @property
    def sort(self) -> tuple[str, Kind, str]:
        """What differences of one kind have in common: numbers of events, ids and the like are left out, but not names of keys or places in a file."""
        left_out = r"[0-9a-fA-F-]{8,}|\d+" if self.kind == "differs" else r"[0-9a-fA-F-]{32,}"
        return self.workflow_type, self.kind, re.sub(left_out, "#", self.detail)

    @property
    def passes(self) -> bool:
        """Whether a release may go out as far as this history says."""
        return self.kind in ("same", *PROVES_NOTHING)


def said(failure: BaseException) -> str:
    """A replay's failure in one line."""
    return words_of_core(failure).removeprefix("[TMPRL1100] ")


def parted(detail: str) -> tuple[int | None, str]:
    """Number and type of the event at which code and history part, as the SDK's text names it."""
    found = _PARTED.search(detail)
    return (int(found["event"]), found["type"]) if found else (None, "")


__all__ = ["PROVES_NOTHING", "Kind", "Verdict", "parted", "said"]
