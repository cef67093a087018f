"""The corpus is whole: whatever a workflow can be asked, asks for and waits for is in a history that every release replays."""

import ast
import re
from collections.abc import Iterator
from typing import get_args

import pytest

from tests.architecture.sources import ROOT, dotted, sources
from tests.replay.corpus import FEATURES, KEPT, SEALED, Events, kept, used
from tests.replay.stories import SEALED as SEALED_STORIES
from tests.replay.stories import STORIES
from workflows.contracts.naming import WORKFLOW_TYPES
from workflows.model.state import Alarm

FAMILIES = (
    "Who may do what",
    "The tree",
    "Turns",
    "Host actions",
    "Steering",
    "Cards, changes, time, the end",
    "Transcripts, exports, metrics",
)
LESSONS = {"L6", "L7", "L9", "L10", "L12", "L17", "L19", "L21"}
"""Those of the section on what breaks elsewhere that a workflow's commands decide."""


@pytest.fixture(scope="module")
def histories() -> list[Events]:
    return [list(kept(path).events) for path in KEPT]


def handlers() -> Iterator[str]:
    """Every update and signal that a workflow is registered with, every activity, and every patch."""
    for source in sources("workflows"):
        for function in source.functions():
            for decorator in function.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if (kind := dotted(called)) in ("workflow.update", "workflow.signal"):
                    yield f"{kind.removeprefix('workflow.')} {_named(decorator) or function.name}"
                elif kind == "activity.defn":
                    yield f"activity {_named(decorator) or function.name}"
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and dotted(node.func) in ("workflow.patched", "workflow.deprecate_patch"):
                yield f"core_patch {ast.literal_eval(node.args[0])}"


def _named(decorator: ast.expr) -> str | None:
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return next((str(ast.literal_eval(word.value)) for word in keywords if word.arg == "name"), None)


def missing(wanted: set[str], found: list[Events]) -> set[str]:
    """What no history uses. A patch is looked for in what its marker says."""
    seen = {use for events in found for use in used(events)}
    patches = {use for use in wanted if use.startswith("core_patch ")}
    unseen = {patch for patch in patches if not any(use.startswith("core_patch ") and patch.split()[1] in use for use in seen)}
    return (wanted - patches - seen) | unseen


def test_l10_every_handler_activity_patch_type_and_timer_is_in_the_corpus(histories: list[Events]) -> None:
    wanted = {*handlers(), *(f"workflow {name}" for name in WORKFLOW_TYPES)}
    wanted |= {f"timer {kind}" for kind in get_args(Alarm.model_fields["what"].annotation)}
    assert {"update message", "signal roll", "activity run_step", "timer deadline"} <= wanted
    assert missing(wanted, histories) == set(), "tell a story that uses them (tests/replay), then: make record-histories"


def test_what_no_history_uses_is_found(histories: list[Events]) -> None:
    wanted = {"signal message", "signal sing", "core_patch louder"}
    assert missing(wanted, histories) == {"signal sing", "core_patch louder"}


@pytest.mark.parametrize("feature", FEATURES)
def test_l10_each_kind_of_event_is_in_the_corpus(feature: str, histories: list[Events]) -> None:
    assert any(FEATURES[feature](events) for events in histories)


def test_each_story_is_kept_and_nothing_else() -> None:
    assert {path.name.split(".")[0] for path in KEPT} == set(STORIES)
    assert {path.name.split(".")[0] for path in SEALED} == set(SEALED_STORIES)


def test_each_family_of_rules_has_its_story() -> None:
    families: dict[str, set[str]] = {}
    for part in (ROOT / "docs" / "rules.md").read_text().split("\n## ")[1:]:
        families[part.split("\n")[0]] = set(re.findall(r"^\| ([A-Z]\d+) \|", part, re.MULTILINE))
    told = {rule for story in (*STORIES.values(), *SEALED_STORIES.values()) for rule in story.rules.split()}
    assert told <= set().union(*families.values()), "a story tells of a rule that is not in docs/rules.md"
    assert [family for family in FAMILIES if not families[family] & told] == []
    assert told >= LESSONS
