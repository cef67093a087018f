"""What was found, as a table."""

from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.table import Table

from activities.deriving.verifying import Verdict
from cli.options import counted

WIDTH = 160
"""Columns of the table where the terminal has fewer, or where there is none."""

LONGEST_VALUE = 60
"""Characters of a value that are shown."""

WORDS = {
    "same": "as their histories say",
    "differs": "differ",
    "rebuilt": "rebuilt",
    "busy": "busy, not compared",
    "unreadable": "can't be read",
    "gone": "gone meanwhile",
}


def named(verdict: Verdict) -> str:
    """The session, with its tenant if that says something."""
    session = verdict.session
    return session.session_id if session.tenant == "default" else f"{session.tenant}/{session.session_id}"


def differences(verdicts: Sequence[Verdict]) -> Table:
    """A row for each thing that is wrong."""
    table = Table("session", "what", "row", "expected", "found", box=box.SIMPLE)
    for verdict in verdicts:
        for one in verdict.differences:
            cells = (named(verdict), one.what, one.row, _cut(one.expected), _cut(one.found))
            table.add_row(*(cell.replace("[", "\\[") for cell in cells))
    return table


def summary(verdicts: Sequence[Verdict]) -> str:
    """One line about all of them."""
    counts: Counter[str] = Counter(verdict.state for verdict in verdicts)
    said = ", ".join(f"{counts[state]} {words}" for state, words in WORDS.items() if counts[state])
    return counted(len(verdicts), "session") + (f": {said}" if said else "")


def problems(verdicts: Sequence[Verdict]) -> list[str]:
    """Why histories can't be read: each reason once, with the sessions that it holds for."""
    counts = Counter(verdict.problem for verdict in verdicts if verdict.problem)
    first = {verdict.problem: named(verdict) for verdict in reversed(verdicts)}
    return [f"{problem} ({counted(count, 'session')}: {first[problem]}{' …' if count > 1 else ''})" for problem, count in counts.items()]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}…"


__all__ = ["differences", "named", "problems", "summary"]
