"""Rule 11 of docs/rules.md: SQL lives in `.sql`, one file a noun, lower case, with its intent above each statement."""

import ast
import re

import pytest

from tests.architecture.sources import PRODUCT, Source, says, sources, violations

BEGINS = re.compile(
    r"\s*(select\s.+\sfrom|select\s+\w+\(|insert\s+into|update\s+\w+\s+set|delete\s+from|with\s+\w+\s+as|(create|alter|drop)\s+(table|index|role|database|schema|type)"
    r"|truncate\s|grant\s|listen\s|notify\s)",
    re.IGNORECASE | re.DOTALL,
)
NAMED = re.compile(r"^-- name: (?P<name>\w+)\((?P<parameters>[^)]*)\)(?P<kind>[\^$!]|<!|\*!)?$")
SHOUTED = re.compile(r"\b(SELECT|INSERT|UPDATE|DELETE|FROM|WHERE|SET|VALUES|JOIN|ORDER|GROUP|RETURNING|CREATE|TABLE|NULL|AND|OR|ON)\b")
LITERAL = re.compile(r"'(?:[^']|'')*'|--[^\n]*")


def docstrings(tree: ast.Module) -> set[int]:
    """Ids of the nodes that are docstrings."""
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    return {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}


def sql_text(source: Source) -> list[str]:
    """Statements in Python."""
    told = docstrings(source.tree)
    texts = [
        node for node in ast.walk(source.tree) if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told
    ]
    return [source.at(node, repr(node.value)[:80]) for node in texts if isinstance(node.value, str) and BEGINS.match(node.value)]


def unexplained(source: Source) -> list[str]:
    """Statements without a line of intent, and names without a parameter list."""
    lines = source.text.splitlines()
    found = []
    for number, line in enumerate(lines):
        if not line.startswith("-- name:"):
            continue
        after = lines[number + 1] if number + 1 < len(lines) else ""
        if not NAMED.match(line):
            found.append(f"{source.path}:{number + 1}: not a name with its parameters: {line}")
        if not re.match(r"-- \S+ \S+", after):
            found.append(f"{source.path}:{number + 1}: no line of intent above the statement")
    return found


def shouted(source: Source) -> list[str]:
    """Key words in capitals."""
    bare = LITERAL.sub(lambda match: "\n" * match.group().count("\n"), source.text)
    return [
        f"{source.path}:{number}: {match.group()}" for number, line in enumerate(bare.splitlines(), 1) for match in SHOUTED.finditer(line)
    ]


def test_style11_python_holds_no_sql() -> None:
    files = [source for source in sources(*PRODUCT) if not source.path.startswith("activities/db/migrations/")]
    assert violations(sql_text, files) == []


@pytest.mark.parametrize(
    "text",
    [
        'await connection.fetch("select 1 from sessions")',
        'x = """\n  insert into turns values (1)"""',
        'x = f"update turns set state = {y}"',
        'x = "SELECT pg_advisory_lock(1)"',
        'x = "create database outlast"',
    ],
)
def test_style11_sql_in_python_is_found(text: str) -> None:
    assert says(sql_text, text)
    assert not says(sql_text, 'def f():\n    """Select a row from a table."""\n    return "updated at noon", "with care"')


def test_style11_each_statement_says_its_intent() -> None:
    files = sources("activities/db/sql", suffix=".sql")
    assert any("-- name:" in source.text for source in files)
    assert violations(unexplained, files) == []


def test_style11_a_silent_statement_is_found() -> None:
    assert not says(unexplained, "-- name: get(id)^\n-- One row.\nselect 1;")
    assert says(unexplained, "-- name: get(id)^\nselect 1;")
    assert says(unexplained, "-- name: get^\n-- One row.\nselect 1;")


def test_style11_sql_is_lower_case() -> None:
    assert violations(shouted, sources("activities", suffix=".sql")) == []


def test_style11_capitals_are_found() -> None:
    assert says(shouted, "select 1 FROM x;")
    assert not says(shouted, "-- FROM here\nselect 'OR' from x;")


def test_style11_names_are_unique_over_all_files() -> None:
    names = [
        match["name"]
        for source in sources("activities/db/sql", suffix=".sql")
        for match in map(NAMED.match, source.text.splitlines())
        if match
    ]
    assert sorted(names) == sorted(set(names))
