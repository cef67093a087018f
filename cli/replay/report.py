"""What a batch showed, for people and for a build server."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element, ElementTree, SubElement

from rich import box
from rich.table import Table

from cli.replay.verdict import PROVES_NOTHING, Kind, Verdict

WIDTH = 106
"""Columns of the table where the terminal has fewer, or where there is none: names of workflows are whole."""

KINDS: tuple[Kind, ...] = ("same", "skipped", "erased", "differs", "failed", "unknown")


def summary(verdicts: Sequence[Verdict], seconds: float) -> Table:
    """A row per workflow type."""
    table = Table("workflow", "histories", "events", *KINDS, box=box.SIMPLE, title=None)
    by_type: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        by_type[verdict.workflow_type].append(verdict)
    for name, those in sorted(by_type.items()):
        counts = Counter(verdict.kind for verdict in those)
        table.add_row(name, str(len(those)), str(sum(one.events for one in those)), *(str(counts[kind]) for kind in KINDS))
    rate = len(verdicts) / seconds if seconds else 0.0
    table.caption = f"{len(verdicts)} {'history' if len(verdicts) == 1 else 'histories'} in {seconds:.1f} s, {rate:.1f} a second"
    return table


def differences(verdicts: Sequence[Verdict]) -> list[str]:
    """The first history of each kind of difference, with the event where code and history part, and how many are like it. Whichever
    process was done first, the same batch is told in the same order.
    """
    like: dict[tuple[str, str, str], list[Verdict]] = {}
    for verdict in sorted(verdicts, key=_place):
        if verdict.kind != "same":
            like.setdefault(verdict.sort, []).append(verdict)
    return [_told(those) for those in like.values()]


def _place(verdict: Verdict) -> tuple[str, str, str]:
    return verdict.source, verdict.workflow_id, verdict.run_id


def _told(those: list[Verdict]) -> str:
    first = those[0]
    where = f" at event {first.event} ({first.event_type})" if first.event is not None else ""
    more = f", and {len(those) - 1} more like it" if len(those) > 1 else ""
    run = f" run {first.run_id}" if first.run_id else ""
    source = f"\n  {first.source}" if first.source else ""
    return f"{first.kind}{where}: {first.workflow_type} {first.workflow_id}{run}{more}\n  {first.detail}{source}"


def write_junit(verdicts: Sequence[Verdict], path: Path) -> None:
    """The verdicts as JUnit XML: a suite per workflow type, a case per history. Raises OSError."""
    root = Element("testsuites", name="outlast replay")
    for name in sorted({verdict.workflow_type for verdict in verdicts}):
        those = sorted((verdict for verdict in verdicts if verdict.workflow_type == name), key=_place)
        bad = [verdict for verdict in those if not verdict.passes]
        skipped = str(sum(verdict.kind in PROVES_NOTHING for verdict in those))
        time = f"{sum(verdict.seconds for verdict in those):.3f}"
        suite = SubElement(
            root, "testsuite", name=name, tests=str(len(those)), failures=str(len(bad)), errors="0", skipped=skipped, time=time
        )
        for verdict in those:
            case = f"{verdict.workflow_id} {verdict.run_id}".strip()
            row = SubElement(suite, "testcase", classname=name, name=case, time=f"{verdict.seconds:.3f}")
            if verdict.kind in PROVES_NOTHING:
                SubElement(row, "skipped", message=verdict.detail)
            elif not verdict.passes:
                SubElement(row, "failure", type=verdict.kind, message=verdict.detail).text = _told([verdict])
    ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


__all__ = ["differences", "summary", "write_junit"]
