"""Rules 8 and 9 of docs/rules.md: outcomes are closed sets of values, faults are one tree of exceptions with their causes kept."""

import ast
import tomllib
from pathlib import Path

from tests.architecture.linters import mypy, ruff
from tests.architecture.sources import PRODUCT, ROOT, Source, dotted, says, sources, violations

TREE = "workflows/contracts/errors.py"


def foreign_roots(source: Source) -> list[str]:
    """Exception classes that begin a tree of their own."""
    return [
        source.at(node, f"{node.name} does not belong to the error tree of {TREE}")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ClassDef)
        and any(dotted(base).rpartition(".")[2] in ("Exception", "BaseException", "RuntimeError", "ValueError") for base in node.bases)
    ]


def silent_catches(source: Source) -> list[str]:
    """`except Exception: pass` and the like."""
    return [
        source.at(node, "an exception vanishes without a word")
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ExceptHandler)
        and dotted(node.type or ast.Name("BaseException")) in ("Exception", "BaseException")
        and all(
            isinstance(line, ast.Pass | ast.Continue) or (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))
            for line in node.body
        )
    ]


CLOSED = """
from typing import Literal, assert_never

def f(x: Literal["a", "b"]) -> int:
    match x:
        case "a":
            return 1
        case "b":
            return 2
        case _:
            assert_never(x)
"""


def test_style08_unions_are_closed(tmp_path: Path) -> None:
    """A new member of a union stops the type check wherever it is not handled."""
    open_to_more = CLOSED.replace('"b"]', '"b", "c"]')
    without_never = open_to_more.replace("        case _:\n            assert_never(x)\n", "    return 0\n")
    assert "Success" in mypy(CLOSED, tmp_path)
    assert "assert_never" in mypy(open_to_more, tmp_path)
    assert "exhaustive-match" in mypy(without_never, tmp_path)


def test_style08_types_are_checked_strictly() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert config["strict"] is True


def test_style09_there_is_one_error_tree() -> None:
    files = [source for source in sources(*PRODUCT) if source.path != TREE]
    assert violations(foreign_roots, files) == []


def test_style09_another_tree_is_found() -> None:
    assert says(foreign_roots, "class Odd(Exception): ...")
    assert says(foreign_roots, "class Odd(builtins.RuntimeError): ...")
    assert not says(foreign_roots, "class Odd(OutlastError): ...")


def test_style09_a_cause_is_kept() -> None:
    assert ruff("try:\n    x = 1\nexcept KeyError:\n    raise ValueError(1)\n", "B904") == ["B904"]


def test_style09_no_exception_vanishes() -> None:
    assert violations(silent_catches, sources(*PRODUCT)) == []
    assert says(silent_catches, "try:\n    f()\nexcept Exception:\n    pass")
    assert not says(silent_catches, "try:\n    f()\nexcept KeyError:\n    pass")
