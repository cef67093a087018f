"""Rule 15 of docs/rules.md: words of the field, public docstrings, and nothing of the machine that a file was written on."""

import ast
import re

import pytest

from tests.architecture.linters import ruff
from tests.architecture.sources import PRODUCT, ROOT, Source, says, sources, tracked, violations

VAGUE = re.compile(r"(^|_)(manager|managers|helper|helpers|util|utils)(_|$)")
# Put together here, so that this file does not find itself.
HOMES = ["/" + name + "/" for name in ("root", "work", "Users", "home/[a-z]")]
INDEXES = ["py" + r"pi\.", "/sim" + "ple/", "index" + "-url", "find" + "-li" + "nks", "python" + "hos" + "ted"]
OF_A_MACHINE = re.compile("|".join(r"(?<![\w.}-])" + home for home in HOMES))
OF_AN_INDEX = re.compile("|".join(INDEXES), re.IGNORECASE)
ALLOWED = re.compile("--no-emit-" + "index" + "-url")


def words(name: str) -> str:
    """`aFancyName` as `a_fancy_name`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def vague_names(source: Source) -> list[str]:
    found = [f"{source.path}: the file's name is vague" for part in re.split(r"[/.]", source.path) if VAGUE.search(words(part))]
    for node in ast.walk(source.tree):
        names = []
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.append(node.id)
        elif isinstance(node, ast.arg):
            names.append(node.arg)
        found += [source.at(node, f"{name}: a vague word") for name in names if VAGUE.search(words(name))]
    return found


def machine_words(source: Source) -> list[str]:
    found = []
    for number, line in enumerate(source.text.splitlines(), 1):
        rest = ALLOWED.sub("", line)
        if OF_A_MACHINE.search(rest) or OF_AN_INDEX.search(rest):
            found.append(f"{source.path}:{number}: {line.strip()[:100]}")
    return found


def test_style15_names_say_what_things_are() -> None:
    assert violations(vague_names, sources()) == []


@pytest.mark.parametrize("text", ["def call_helper(): ...", "class TurnManager: ...", "def f(utils): ...", "x_util = 1"])
def test_style15_a_vague_name_is_found(text: str) -> None:
    assert says(vague_names, text)
    assert says(vague_names, "", "api/utils.py")
    assert not says(vague_names, "utilisation = managed = 1")


def test_style15_nothing_of_a_machine_is_in_the_tree() -> None:
    texts = []
    for path in tracked():
        try:
            texts.append(Source(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
        except UnicodeDecodeError:
            continue
    assert violations(machine_words, texts) == []


@pytest.mark.parametrize(
    "line", [HOMES[0] + "x", "cd " + HOMES[1] + "here", "--" + INDEXES[2] + " http://x", "https://" + "py" + "pi.example/x"]
)
def test_style15_a_path_or_an_index_is_found(line: str) -> None:
    assert says(machine_words, line, "Makefile")
    assert not says(machine_words, "a network/workflow path; --no-emit-" + "index" + "-url")


def test_style15_public_docstrings_are_required() -> None:
    assert ruff("def f() -> None:\n    x = 1\n\n\nclass A:\n    x = 1\n", "D101", "D103") == ["D101", "D103"]
    assert ruff('"""M."""\n\n\ndef f() -> None:\n    """F."""\n', "D101", "D103") == []


def test_style15_the_product_is_typed_strictly() -> None:
    undone = [f"{source.path}: {line.strip()}" for source in sources(*PRODUCT) for line in source.text.splitlines() if "# mypy:" in line]
    assert undone == []
