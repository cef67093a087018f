"""Rules 2, 6 and 10 of docs/rules.md: what crosses a boundary is declared once, frozen, only ever added to, and patient by name."""

import ast
import importlib
import inspect
import json
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel, ConfigDict
from temporalio import activity

from tests.architecture.contract_fields import COMMITTED, changes, contract_fields, described, records
from tests.architecture.sources import ROOT, Source, dotted, says, sources, violations
from workflows.model.base import Record

Activity = Callable[..., Any]
CONTRACT_FILES = sorted((ROOT / "workflows" / "contracts").glob("*.py"))
CALLS = {
    "execute_activity",
    "start_activity",
    "execute_activity_method",
    "start_activity_method",
    "execute_activity_class",
    "start_activity_class",
}
LOCAL_CALLS = {name.replace("_activity", "_local_activity") for name in CALLS}
BOUNDED_BY = {"start_to_close_timeout", "schedule_to_close_timeout"}
PATIENCE = {"timedelta", "RetryPolicy"}


def activities(module: ModuleType | SimpleNamespace) -> Iterator[tuple[str, Activity]]:
    """The activities that a module defines, methods of its classes too, by the name that Temporal knows them under."""
    values = list(vars(module).values())
    own = [value for value in values if inspect.isclass(value) and value.__module__ == module.__name__]
    for value in [*values, *(member for each in own for member in vars(each).values())]:
        definition = getattr(value, "__temporal_activity_definition", None)
        if definition is not None and value.__module__ == module.__name__:
            yield definition.name, value


def signature(function: Activity) -> dict[str, Any]:
    """Types by position, without `self`, and of the result."""
    hints = get_type_hints(function)
    taken = [hints.get(name) for name in inspect.signature(function).parameters if name != "self"]
    return {"takes": taken, "returns": hints.get("return")}


def unpaired(stubs: ModuleType | SimpleNamespace, implementations: ModuleType | SimpleNamespace) -> list[str]:
    """Where declared and implemented activities differ."""
    declared, done = dict(activities(stubs)), dict(activities(implementations))
    found = [f"{name} is declared and not implemented" for name in declared.keys() - done.keys()]
    found += [f"{name} is implemented and not declared" for name in done.keys() - declared.keys()]
    for name in declared.keys() & done.keys():
        if signature(declared[name]) != signature(done[name]):
            found.append(f"{name}: {signature(declared[name])} is declared, {signature(done[name])} implemented")
    return found


def shapeless(module: ModuleType | SimpleNamespace) -> list[str]:
    """Declared activities that don't take one record and answer one record or nothing."""
    found = []
    for name, function in activities(module):
        shape = signature(function)
        records = [kind for kind in [*shape["takes"], shape["returns"]] if inspect.isclass(kind) and issubclass(kind, Record)]
        if len(shape["takes"]) != 1 or len(records) != (1 if shape["returns"] in (None, type(None)) else 2):
            found.append(f"{name}: {shape}")
    return found


def impatient(source: Source) -> list[str]:
    """Activity calls without a time limit or a retry policy, and patience that has no name."""
    found = []
    for node in ast.walk(source.tree):
        name = dotted(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
        if isinstance(node, ast.Call) and name in CALLS | LOCAL_CALLS and not any(word.arg is None for word in node.keywords):
            given = {word.arg for word in node.keywords}
            found += [] if given & BOUNDED_BY else [source.at(node, "an activity without a time limit")]
            found += [] if "retry_policy" in given else [source.at(node, "an activity without a retry policy")]
        if isinstance(node, ast.Call) and name in PATIENCE and all(isinstance(value, ast.Constant) for value in values(node)):
            found.append(source.at(node, f"{name} with a number: give it a name in contracts/policies.py"))
    return found


def retrying(source: Source) -> list[str]:
    """Client libraries that try again by themselves. (Temporal's counts the first try: 1 is none.)"""
    words = [word for node in ast.walk(source.tree) if isinstance(node, ast.Call) for word in node.keywords if word.arg == "max_retries"]
    return [source.at(word.value, "a client that retries") for word in words if ast.unparse(word.value) not in ("0", "1")]


def values(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(word.value for word in call.keywords)]


@pytest.mark.parametrize("path", CONTRACT_FILES, ids=lambda path: path.stem)
def test_style02_each_declared_activity_has_one_implementation(path: Any) -> None:
    stubs = importlib.import_module(f"workflows.contracts.{path.stem}")
    if not dict(activities(stubs)):
        return
    assert unpaired(stubs, importlib.import_module(f"activities.{path.stem}")) == []


def test_style02_no_activity_is_undeclared() -> None:
    """Only files that pair with a contract define activities."""
    pairs = {f"activities/{path.name}" for path in CONTRACT_FILES}
    defined = {source.path for source in sources("activities") if "activity.defn" in source.text}
    assert defined
    assert defined - pairs == set()


class Asked(Record):
    x: int


def module(**functions: Activity) -> SimpleNamespace:
    return SimpleNamespace(__name__=__name__, **functions)


def test_style02_a_difference_is_found() -> None:
    @activity.defn(name="act")
    async def declared(asked: Asked) -> Asked:
        return asked

    @activity.defn(name="act")
    async def other(asked: int) -> Asked:
        return Asked(x=asked)

    class Owner:
        @activity.defn(name="act")
        async def method(self, asked: Asked) -> Asked:
            return asked

    assert not unpaired(module(a=declared), module(a=Owner.method))
    assert unpaired(module(a=declared), module(a=other))
    assert unpaired(module(a=declared), module())
    assert unpaired(module(), module(a=declared))


@pytest.mark.parametrize("path", CONTRACT_FILES, ids=lambda path: path.stem)
def test_style06_an_activity_takes_one_record_and_answers_one(path: Any) -> None:
    assert shapeless(importlib.import_module(f"workflows.contracts.{path.stem}")) == []


def test_style06_a_shapeless_activity_is_found() -> None:
    @activity.defn(name="two")
    async def two(asked: Asked, more: int) -> Asked:
        return asked

    @activity.defn(name="plain")
    async def plain(asked: dict[str, Any]) -> None: ...

    assert len(shapeless(module(a=two, b=plain))) == 2


def test_style06_contracts_are_frozen_and_tolerant() -> None:
    for record in records():
        assert record.model_config.get("frozen") is True, record
        assert record.model_config.get("extra") == "ignore", record


def test_style06_contracts_only_grow() -> None:
    """Running sessions hold payloads of older releases. A field that was there stays as it was; a new one has a default."""
    committed = json.loads(COMMITTED.read_text())
    found = changes(committed, contract_fields())
    assert found == [], "\n".join([*found, "additions: python -m tests.architecture.contract_fields"])


def test_style06_each_kind_of_change_is_found() -> None:
    class Old(BaseModel):
        model_config = ConfigDict(title="R")
        kept: int
        made: str = ""

    class New(BaseModel):
        model_config = ConfigDict(title="R")
        kept: str
        added: int

    assert not changes({"R": described(Old)}, {"R": described(Old)})
    found = "\n".join(changes({"R": described(Old)}, {"R": described(New)}))
    for words in ("R.made was removed", "R.kept changed", "R.added has no default", "R.added is not recorded"):
        assert words in found
    assert changes({"R": described(Old)}, {}) == ["R was removed"]
    assert changes({}, {"R": described(Old)}) == ["R is not recorded"]


def test_style10_patience_has_a_name() -> None:
    files = [source for source in sources("workflows") if source.path != "workflows/contracts/policies.py"]
    assert violations(impatient, files) == []


@pytest.mark.parametrize(
    "text",
    [
        "workflow.execute_activity(run_step, step, retry_policy=policies.STEP)",
        "workflow.start_activity(run_step, step, start_to_close_timeout=policies.LIFETIME)",
        "wait(timeout=timedelta(seconds=5))",
        "x = RetryPolicy(maximum_attempts=3)",
    ],
)
def test_style10_nameless_patience_is_found(text: str) -> None:
    assert says(impatient, text)
    assert not says(impatient, "workflow.start_activity(a, b, start_to_close_timeout=policies.LIFETIME, retry_policy=policies.STEP)")
    assert not says(impatient, "timedelta(seconds=call.timeout_seconds)")


def test_style10_client_libraries_retry_nothing() -> None:
    assert any("max_retries=0" in source.text for source in sources("activities/llm"))
    assert violations(retrying, sources("activities", "api", "cli", "worker.py")) == []
    assert says(retrying, "Client(max_retries=3)")
    assert not says(retrying, "Client(max_retries=0)")
