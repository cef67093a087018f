"""Rule 7 of docs/rules.md: handlers record and return, refuse before history, and are tested with the same delivery twice and a late one."""

import ast
from collections.abc import Iterator

from tests.architecture.sources import Function, Source, dotted, says, sources, violations

HANDLER_LINES = 20


def decorators(function: Function) -> list[str]:
    return [dotted(each.func if isinstance(each, ast.Call) else each) for each in function.decorator_list]


def handlers(source: Source, *kinds: str) -> Iterator[Function]:
    """Update or signal handlers of a workflow."""
    return (function for function in source.functions() if any(name in kinds for name in decorators(function)))


def unvalidated(source: Source) -> list[str]:
    """Updates that nothing refuses before they are written into history."""
    validated = {
        name.removesuffix(".validator") for function in source.functions() for name in decorators(function) if name.endswith(".validator")
    }
    return [
        source.at(function, f"update {function.name} has no validator")
        for function in handlers(source, "workflow.update")
        if function.name not in validated
    ]


def busy(source: Source) -> list[str]:
    """Handlers that do the work themselves."""
    found = []
    for function in handlers(source, "workflow.update", "workflow.signal"):
        lines = (function.end_lineno or 0) - function.lineno + 1
        calls = [dotted(node.func) for node in ast.walk(function) if isinstance(node, ast.Call)]
        found += [source.at(function, f"{function.name} calls {call}") for call in calls if call.rpartition(".")[2].endswith("_activity")]
        found += [source.at(function, f"{function.name} has {lines} lines")] if lines > HANDLER_LINES else []
    return found


def undrained(source: Source) -> list[str]:
    """Runs that continue as new without a look at unfinished handlers."""
    rolls = any(dotted(node) == "workflow.continue_as_new" for node in ast.walk(source.tree))
    drains = any(dotted(node) == "workflow.all_handlers_finished" for node in ast.walk(source.tree))
    heard = any(handlers(source, "workflow.update", "workflow.signal"))
    return [f"{source.path} continues as new without waiting for its handlers"] if rolls and heard and not drains else []


def untested(names: set[str], tests: set[str]) -> list[str]:
    """Handlers without a test of a repeat or of a late delivery."""
    return [
        f"no test of {name} has the word {word} in its name"
        for name in sorted(names)
        for word in ("twice", "late")
        if not any(word in test.split("_") and name in test for test in tests)
    ]


def flows() -> list[Source]:
    return [source for source in sources("workflows") if "@workflow.defn" in source.text]


def test_style07_updates_are_refused_before_history() -> None:
    assert violations(unvalidated, flows()) == []


def test_style07_handlers_record_and_return() -> None:
    assert violations(busy, flows()) == []


def test_style07_handlers_are_drained_before_exit() -> None:
    assert violations(undrained, flows()) == []


def test_style07_each_handler_is_tested_twice_and_late() -> None:
    names = {function.name for source in flows() for function in handlers(source, "workflow.update")}
    tests = {function.name for source in sources("tests") for function in source.functions() if function.name.startswith("test_")}
    assert names
    assert untested(names, tests) == []


def test_style07_each_fault_is_found() -> None:
    update = "class S:\n    @workflow.update\n    async def cancel(self, x): await workflow.execute_activity(x)\n"
    checked = update + "    @cancel.validator\n    def check(self, x): ...\n"
    assert says(unvalidated, update)
    assert not says(unvalidated, checked)
    assert says(busy, update)
    assert says(busy, update.replace("await workflow.execute_activity(x)", "\n" + "        x = 1\n" * HANDLER_LINES))
    assert not says(busy, update.replace("await workflow.execute_activity(x)", "return x"))
    assert says(undrained, update + "workflow.continue_as_new(1)")
    assert not says(undrained, update + "workflow.wait_condition(workflow.all_handlers_finished)\nworkflow.continue_as_new(1)")
    assert untested({"cancel"}, {"test_r91_cancel_twice"}) == ["no test of cancel has the word late in its name"]
