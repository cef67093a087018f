"""Rules 1, 3 and 4 of docs/rules.md: imports point inward, logic stays in the sandbox, workflows are deterministic.

Each test of a linter's configuration also breaks a copy of the tree on purpose and sees the linter notice.
"""

import ast
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.architecture.linters import lint_imports, ruff
from tests.architecture.sources import ROOT, Source, dotted, says, sources, violations

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = [contract["name"] for contract in CONFIG["tool"]["importlinter"]["contracts"]]
BANNED = tomllib.loads((ROOT / "workflows" / "ruff.toml").read_text())["lint"]["flake8-tidy-imports"]["banned-api"]
PACKAGES = CONFIG["tool"]["importlinter"]["root_packages"]

BREACHES = {
    "workflows/model/call.py": "import workflows.contracts.naming",
    "workflows/rules/__init__.py": "import asyncpg, activities.db",
    "activities/db/__init__.py": "import workflows.session, api, pydantic_ai",
    "api/__init__.py": "import activities.steps, pydantic_ai, worker",
    "profiles/__init__.py": "import activities.db",
}
"""One line for each file; together they break every contract."""


SETTINGS_KNOW = {"workflows.contracts.errors", "workflows.contracts.horizon"}


def settings_imports(source: Source) -> list[str]:
    """What settings.py takes from the project that it may not know. It is a module, which the import linter can't start from."""
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in {*PACKAGES, "worker"}:
            found += [] if node.module in SETTINGS_KNOW else [source.at(node, node.module)]
        if isinstance(node, ast.Import):
            found += [source.at(node, name.name) for name in node.names if name.name.split(".")[0] in {*PACKAGES, "worker"}]
    return found


def unsafe_doors(source: Source) -> list[str]:
    """Uses of `workflow.unsafe` anywhere but where an activity may ask if it is replayed."""
    return [source.at(node, dotted(node)) for node in ast.walk(source.tree) if dotted(node).endswith("workflow.unsafe")]


def test_style01_imports_point_inward() -> None:
    assert "0 broken" in lint_imports(ROOT)


def test_style01_every_contract_can_be_broken(tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, line in BREACHES.items():
        with (tmp_path / name).open("a") as file:
            file.write(f"\n{line}\n")
    for module in ("worker.py", "settings.py"):
        shutil.copy(ROOT / module, tmp_path)
    report = " ".join(lint_imports(tmp_path).split())
    assert [name for name in CONTRACTS if f"{name} BROKEN" not in report] == []


def test_style01_settings_know_only_errors_and_how_far_ahead_anything_can_be() -> None:
    assert violations(settings_imports, sources("settings.py")) == []
    assert says(settings_imports, "from api.app import app\nimport worker") != []


def loaded_by(program: str) -> set[str]:
    """The top packages that a Python program has loaded when it ends."""
    asked = f"import sys\n{program}\nprint(*(name for name in sys.modules if '.' not in name))"
    done = subprocess.run([sys.executable, "-c", asked], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    return set(done.stdout.split())


def test_what_knows_nothing_of_temporal_starts_without_its_sdk() -> None:
    """`outlast --help` and `outlast chat` would take a third longer to begin."""
    chat = "from cli.options import configured; import cli.main, cli.chat.loop, cli.chat.place; configured(None)"
    loaded = loaded_by(chat)
    assert {"cli", "httpx", "typer"} <= loaded
    assert loaded & {"temporalio", "google", "asyncpg", "activities", "api", "openai", "pydantic_ai", "worker"} == set()


def test_style03_no_door_leads_out_of_the_sandbox() -> None:
    assert violations(unsafe_doors, sources("workflows", "activities", "api", "cli", "profiles", "worker.py")) == []
    assert says(unsafe_doors, "with workflow.unsafe.imports_passed_through():\n    import os")


def use_of(name: str) -> str:
    """A program that uses a banned name, or a part of it where it is a module."""
    module, _, member = name.rpartition(".")
    if not module:
        return f"import {name}\n\n{name}.x\n"
    return f"from {module} import {member}\n\n{member}()\n"


@pytest.mark.parametrize("name", sorted(BANNED))
def test_style04_a_banned_name_is_found_and_its_replacement_named(name: str) -> None:
    assert ruff(use_of(name), "TID251", path="workflows/example.py") == ["TID251"]
    assert len(BANNED[name]["msg"].split()) > 1


@pytest.mark.parametrize(
    "name", ["time", "random", "uuid.uuid4", "os", "logging", "threading", "datetime.datetime.now", "temporalio.workflow.unsafe"]
)
def test_style04_what_replay_can_not_repeat_is_banned(name: str) -> None:
    assert name in BANNED


def test_style04_the_ban_holds_in_workflows_only() -> None:
    assert ruff(use_of("random"), "TID251", path="activities/example.py") == []
    assert not [source.path for source in sources("workflows") if "noqa: TID251" in source.text]
