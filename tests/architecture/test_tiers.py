"""Rules 12 and 14 of docs/rules.md: each tier exists, keeps to its means, and runs against real servers."""

import ast
import re

import pytest

from tests.architecture.sources import ROOT, Source, dotted, says, sources, violations

TIERS = ("architecture", "chaos", "flows", "http", "io", "replay", "unit")
IO = {"asyncpg", "httpx", "socket", "subprocess", "temporalio.client", "temporalio.testing", "temporalio.worker", "aiosql", "sqlalchemy"}
FOREIGN = re.compile(r"(asyncpg|temporalio)(\.|$)")


def imported(source: Source) -> list[tuple[ast.AST, str]]:
    found: list[tuple[ast.AST, str]] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            found += [(node, name.name) for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found += [(node, node.module), *((node, f"{node.module}.{name.name}") for name in node.names)]
    return found


def io_in_units(source: Source) -> list[str]:
    """Unit tests that could reach out."""
    return [source.at(node, name) for node, name in imported(source) if name in IO]


def patched(source: Source) -> list[str]:
    """Mocks, and patches of the database driver or of Temporal."""
    found = [source.at(node, name) for node, name in imported(source) if name == "mock" or name.startswith("unittest.mock")]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in ("setattr", "patch", "delattr") and node.args:
            target = str(node.args[0].value) if isinstance(node.args[0], ast.Constant) else dotted(node.args[0])
            found += [source.at(node, f"patches {target}")] if FOREIGN.match(target) else []
    return found


def excused(source: Source) -> list[str]:
    """Tests that are skipped or expected to fail whatever happens."""
    found = []
    for node in ast.walk(source.tree):
        name = dotted(node.func if isinstance(node, ast.Call) else node)
        if name in ("pytest.mark.skip", "pytest.mark.xfail", "pytest.skip", "pytest.xfail", "pytest.importorskip"):
            found.append(source.at(node, name))
    return found


@pytest.mark.parametrize("tier", TIERS)
def test_style14_each_tier_has_tests(tier: str) -> None:
    tests = [function for source in sources(f"tests/{tier}") for function in source.functions() if function.name.startswith("test_")]
    assert tests


def test_style14_there_are_no_other_tiers() -> None:
    """A folder that `make test` doesn't name would never run."""
    folders = {source.path.split("/")[1] for source in sources("tests") if source.path.count("/") > 1 and "/test_" in source.path}
    assert folders - {"live"} <= set(TIERS)
    assert all(f"tests/{tier}" in (ROOT / "Makefile").read_text() for tier in TIERS)


def test_style14_unit_tests_do_no_io() -> None:
    assert violations(io_in_units, sources("tests/unit")) == []
    assert says(io_in_units, "from temporalio import client")
    assert says(io_in_units, "import asyncpg")
    assert not says(io_in_units, "from temporalio import activity")


def test_style14_no_server_is_mocked() -> None:
    assert violations(patched, sources("tests")) == []


@pytest.mark.parametrize(
    "text",
    ["from unittest.mock import Mock", "import unittest.mock", 'm.setattr("asyncpg.connect", x)', "m.setattr(temporalio.client, 'x', y)"],
)
def test_style14_a_mock_is_found(text: str) -> None:
    assert says(patched, text)
    assert not says(patched, "monkeypatch.setattr(policies, 'ROLL_EVENTS', 5)")


def test_style14_no_test_is_excused() -> None:
    assert violations(excused, sources("tests")) == []
    assert says(excused, "@pytest.mark.skip\ndef test_x(): ...")
    assert says(excused, "@pytest.mark.xfail(reason='x')\ndef test_x(): ...")


def test_style12_schema_and_migrations_are_compared() -> None:
    """The comparison is a test of the io tier; its name is fixed so that it can't get lost."""
    names = {function.name for source in sources("tests/io") for function in source.functions()}
    assert any(name.startswith("test_style12_") for name in names)


def test_style11_every_statement_is_prepared_in_a_test() -> None:
    names = {function.name for source in sources("tests/io") for function in source.functions()}
    assert any(name.startswith("test_style11_") for name in names)
