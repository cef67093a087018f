"""What docs/ says is there: links, rules with their tests, settings, commands."""

import re

from cli.configuration import document
from profiles import Profile
from tests.architecture.sources import PRODUCT, ROOT, Source, says, sources, violations

LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
RULE = re.compile(r"^\| ([RSKLP])(\d+) \|", re.MULTILINE)
CITED = re.compile(r"\b([RSKLP])(\d+)(?:–\1?(\d+))?\b")
STORE = "S3"
"""Amazon's protocol, which is no rule."""
PAGE = re.compile(r"\b([\w-]+\.md)\b")
EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
TARGET = re.compile(r"(?:^|`)make ([a-z-]+)", re.MULTILINE)


def anchors(text: str) -> set[str]:
    """What the headings of a page are linked by."""
    return {re.sub(r"[^\w -]", "", heading.strip().lower()).replace(" ", "-") for heading in HEADING.findall(BLOCK.sub("", text))}


def broken_links(source: Source) -> list[str]:
    folder = (ROOT / source.path).parent
    found = []
    for target, anchor in LINK.findall(source.text):
        page = folder / target
        if target and not page.exists():
            found.append(f"{source.path}: {target} is not there")
        elif anchor and anchor not in anchors(page.read_text() if target else source.text):
            found.append(f"{source.path}: {target} has no heading {anchor}")
    return found


def listed_rules() -> set[str]:
    return {f"{letter}{int(number)}" for letter, number in RULE.findall((ROOT / "docs" / "rules.md").read_text())}


def unproved(rules: set[str], tests: set[str]) -> list[str]:
    """Rules without a test that begins with their number, or with several rules' numbers."""
    begun = [match[0] for name in tests if (match := re.match(r"test((_[a-z]\d+)+)_", name))]
    proved = {f"{letter.upper()}{int(number)}" for numbers in begun for letter, number in re.findall(r"_([a-z])(\d+)", numbers)}
    return sorted(rules - proved)


def unknown_rules(source: Source) -> list[str]:
    """Citations of rules that docs/rules.md doesn't have."""
    known = listed_rules()
    found = []
    for number, line in enumerate(source.text.splitlines(), 1):
        for letter, first, last in CITED.findall(line):
            cited = {f"{letter}{int(first)}", f"{letter}{int(last or first)}"}
            found += [f"{source.path}:{number}: {rule} is not in docs/rules.md" for rule in sorted(cited - known - {STORE})]
    return found


def unknown_pages(source: Source) -> list[str]:
    """Citations of pages that are not in docs/."""
    pages = {path.name for path in (ROOT / "docs").rglob("*.md")} | {"README.md"}
    return [f"{source.path}: {page} is not in docs/" for page in PAGE.findall(source.text) if page not in pages]


def unknown_targets(source: Source) -> list[str]:
    """`make` commands that the Makefile doesn't have."""
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    return [f"{source.path}: make {target} is not there" for target in TARGET.findall(source.text) if target not in known]


def test_style15_links_lead_somewhere() -> None:
    assert violations(broken_links, sources(suffix=".md")) == []
    assert says(broken_links, "[x](nowhere.md)", "docs/x.md")
    assert says(broken_links, "[x](rules.md#no-such-heading)", "docs/x.md")
    assert says(broken_links, "[x](#y)\n```\n# Y\n```", "docs/x.md")
    assert not says(broken_links, "# A `b`, c\n[x](https://example.org) [y](rules.md#host-actions) [z](#a-b-c)", "docs/x.md")


def test_style15_the_reading_order_has_every_page() -> None:
    listed = {target for target, _ in LINK.findall((ROOT / "docs" / "README.md").read_text())}
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert pages <= listed, sorted(pages - listed)


def test_style15_settings_are_documented() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == document(), "make docs writes it again"


def test_style15_each_rule_has_a_test() -> None:
    tests = {function.name for source in sources("tests") for function in source.functions() if function.name.startswith("test_")}
    assert listed_rules()
    assert unproved(listed_rules(), tests) == []
    assert unproved({"R5", "L7"}, {"test_r5_x", "test_r07_x"}) == ["L7"]
    assert unproved({"L7", "R63"}, {"test_r63_l07_x"}) == []


def test_style15_cited_rules_and_pages_are_there() -> None:
    files = [*sources(*PRODUCT), *sources("activities", suffix=".sql")]
    assert violations(unknown_rules, files) == []
    assert violations(unknown_pages, files) == []
    assert says(unknown_rules, '"""X (R9999)."""')
    assert says(unknown_pages, '"""X (nowhere.md, Y)."""')


def test_style15_make_commands_are_there() -> None:
    assert violations(unknown_targets, sources(suffix=".md")) == []
    assert says(unknown_targets, "run `make nothing`", "docs/x.md")


def test_style15_examples_in_python_run() -> None:
    """The blocks of code in docs/ are programs. The one in getting-started.md defines a profile."""
    found = {source.path: EXAMPLE.findall(source.text) for source in sources("docs", suffix=".md")}
    names: dict[str, object] = {}
    for path, examples in found.items():
        for example in examples:
            exec(compile(example, path, "exec"), names)
    assert isinstance(names.get("profile"), Profile)
