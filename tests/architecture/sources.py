"""The tree as the architecture tests see it: every source file with its text and its syntax."""

import ast
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("workflows", "activities", "api", "cli", "profiles", "settings.py", "worker.py")
"""What is installed. Tests and benchmarks are not."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Source:
    """One file. `path` is relative to the root, with slashes."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.path)

    def functions(self) -> Iterator[Function]:
        """Every function and method, nested ones too."""
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def at(self, node: ast.AST, what: str) -> str:
        """A violation at a place."""
        return f"{self.path}:{getattr(node, 'lineno', 0)}: {what}"


Check = Callable[[Source], list[str]]


def tracked() -> list[Path]:
    """Files of the repository: tracked ones, and new ones that are not ignored."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    return sorted(path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file())


def sources(*tops: str, suffix: str = ".py") -> list[Source]:
    """The files of one suffix under some folders (or the named files); the whole tree without a name."""
    found = []
    for path in tracked():
        name = path.relative_to(ROOT).as_posix()
        if name.endswith(suffix) and (not tops or any(name == top or name.startswith(top + "/") for top in tops)):
            found.append(Source(name, path.read_text(encoding="utf-8")))
    return found


def violations(check: Check, files: list[Source]) -> list[str]:
    """What a check says of some files. There must be some: a check of nothing proves nothing."""
    assert files, "nothing to check"
    return [line for file in files for line in check(file)]


def says(check: Check, text: str, path: str = "workflows/example.py") -> list[str]:
    """What a check says of an example."""
    return check(Source(path, text))


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a name or an attribute, else an empty string."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (base := dotted(node.value)):
        return f"{base}.{node.attr}"
    return ""
