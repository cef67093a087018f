"""Rules 5 and 13 of docs/rules.md: a reader sees the whole of a thing at once, and endpoints only validate, address and map."""

import ast
import tomllib

from tests.architecture.sources import PRODUCT, ROOT, Function, Source, dotted, says, sources, violations

FUNCTION_LINES = 40
FILE_LINES = 300
WORKFLOW_LINES = 250
SETTINGS_LINES = 400
"""The settings are one table of keys, which is looked up and not read."""
ENDPOINT_LINES = 15
VERBS = {"get", "post", "put", "patch", "delete", "head", "options", "api_route"}


def long_functions(source: Source) -> list[str]:
    found = []
    for function in source.functions():
        lines = (function.end_lineno or 0) - function.lineno + 1
        if lines > FUNCTION_LINES:
            found.append(source.at(function, f"{function.name} has {lines} lines, {FUNCTION_LINES} are allowed"))
    return found


def long_file(source: Source) -> list[str]:
    lines = source.text.count("\n")
    allowed = SETTINGS_LINES if source.path == "settings.py" else WORKFLOW_LINES if source.path.startswith("workflows/") else FILE_LINES
    return [f"{source.path} has {lines} lines, {allowed} are allowed"] if lines > allowed else []


def body_lines(function: Function) -> int:
    """Lines of a function's body without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (function.end_lineno or 0) - body[0].lineno + 1 if body else 0


def is_endpoint(function: Function) -> bool:
    called = [dotted(decorator.func) for decorator in function.decorator_list if isinstance(decorator, ast.Call)]
    return any("." in name and name.rpartition(".")[2] in VERBS for name in called)


def long_endpoints(source: Source) -> list[str]:
    return [
        source.at(function, f"endpoint {function.name} has {body_lines(function)} lines of body, {ENDPOINT_LINES} are allowed")
        for function in source.functions()
        if is_endpoint(function) and body_lines(function) > ENDPOINT_LINES
    ]


def test_style05_functions_fit_a_screen() -> None:
    assert violations(long_functions, sources()) == []


def test_style05_a_long_function_is_found() -> None:
    lines = "".join(f"    x = {n}\n" for n in range(FUNCTION_LINES))
    assert says(long_functions, "def f():\n" + lines)
    assert not says(long_functions, "def f():\n" + "    x = 1\n" * (FUNCTION_LINES - 1))


# The schema is one document, read from top to bottom, and stands twice: as it is, and as what the first migration makes.
SCHEMA = ("activities/db/schema.sql", "activities/db/migrations/sql/0001_initial.sql")


def test_style05_files_stay_short() -> None:
    statements = [source for source in sources("activities", suffix=".sql") if source.path not in SCHEMA]
    assert violations(long_file, [*sources(), *statements]) == []


def test_style05_a_long_file_is_found() -> None:
    assert says(long_file, "x = 1\n" * (WORKFLOW_LINES + 1), "workflows/session.py")
    assert not says(long_file, "x = 1\n" * (WORKFLOW_LINES + 1), "api/app.py")
    assert says(long_file, "x = 1\n" * (FILE_LINES + 1), "api/app.py")
    assert says(long_file, "x = 1\n" * (SETTINGS_LINES + 1), "settings.py")


def test_style05_ruff_bounds_complexity() -> None:
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "C90" in lint["select"]
    assert lint["mccabe"]["max-complexity"] <= 10


def test_style13_endpoints_are_thin() -> None:
    files = sources("api")
    assert any(is_endpoint(function) for file in files for function in file.functions())
    assert violations(long_endpoints, files) == []


def test_style13_a_thick_endpoint_is_found() -> None:
    body = "    x = 1\n" * (ENDPOINT_LINES + 1)
    assert says(long_endpoints, '@router.post("/x")\nasync def f():\n    """Says."""\n' + body)
    assert not says(long_endpoints, "@lru_cache(maxsize=1)\ndef f():\n" + body)


def test_style05_every_product_folder_is_seen() -> None:
    assert {path.split("/")[0] for path in (source.path for source in sources(*PRODUCT))} == set(PRODUCT)
