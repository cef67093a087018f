"""The linters as they are configured here, to be tried on examples that break their rules."""

import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT


def ruff(text: str, *rules: str, path: str = "api/example.py") -> list[str]:
    """Those of the rules that an example breaks, were it the named file."""
    command = [sys.executable, "-m", "ruff", "check", "--no-cache", "--output-format", "concise", "--stdin-filename", path, "-"]
    answer = subprocess.run(command, input=text, capture_output=True, text=True, cwd=ROOT, check=False)
    assert answer.returncode in (0, 1), answer.stderr
    return [rule for rule in rules if f" {rule} " in answer.stdout]


def lint_imports(folder: Path) -> str:
    """The import linter's report on a tree."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def mypy(text: str, folder: Path) -> str:
    """What mypy says of an example."""
    file = folder / "example.py"
    file.write_text(text)
    command = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(folder / "cache"), str(file)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False).stdout
