"""architecture.md, Profiles: loading modules and files that settings name."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from profiles.loading import Profiles, load_profiles
from settings import Settings
from workflows.contracts.errors import SetupError

ONE = 'from profiles import Profile\nprofile = Profile("one", "You are one.")\n'


@pytest.fixture(autouse=True)
def forgotten(tmp_path: Path) -> Iterator[None]:
    """What a test wrote and loaded under some name is no other test's."""
    yield
    for name, module in list(sys.modules.items()):
        if Path(getattr(module, "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[name]


def loaded(*sources: Path | str, profile: str = "default") -> Profiles:
    return load_profiles(Settings(profiles=[str(source) for source in sources], profile=profile))


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_profiles_the_shipped_ones_are_there() -> None:
    profiles = loaded()
    assert set(profiles) == {"default", "demo"}
    assert profiles.default is profiles["default"]


def test_profiles_a_file_is_loaded_and_may_import_its_neighbours(tmp_path: Path) -> None:
    written(tmp_path, 'TEXT = "from next door"\n', "neighbour_of_profile.py")
    path = written(tmp_path, 'from neighbour_of_profile import TEXT\nfrom profiles import Profile\nprofiles = [Profile("two", TEXT)]\n')
    profiles = loaded(path, profile="two")
    assert profiles.default.instructions == "from next door"


def test_profiles_hints_of_a_file_with_postponed_annotations_resolve(tmp_path: Path) -> None:
    text = (
        "from __future__ import annotations\nfrom profiles import Profile, ToolContext\n"
        'def who(ctx: ToolContext, n: int) -> str:\n    return ctx.principal\nprofile = Profile("one", "", tools=[who])\n'
    )
    assert len(loaded(written(tmp_path, text))["one"].tools) == 1


def test_profiles_a_module_of_the_working_folder_is_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, ONE, "module_of_my_own.py")
    monkeypatch.chdir(tmp_path)
    assert "one" in loaded("module_of_my_own")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import nothing_of_that_name\n", ("mine.py", "nothing_of_that_name")),
        ("profile = (\n", ("mine.py", "SyntaxError")),
        ("raise SystemExit(3)\n", ("mine.py", "SystemExit")),
        ("x = 1\n", ("mine.py", "neither")),
        ("profile = 1\n", ("mine.py", "not a Profile")),
        (ONE.replace('"one"', '"demo"'), ("'demo'", "twice", "profiles.demo")),
        (ONE.replace(", ", ", tools=3, instructions="), ("'one'", "tools")),
    ],
)
def test_profiles_what_stops_the_start_is_one_line(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    with pytest.raises(SetupError) as raised:
        loaded(written(tmp_path, text))
    assert "\n" not in str(raised.value)
    assert all(word in str(raised.value) for word in words), str(raised.value)


@pytest.mark.parametrize(("sources", "word"), [(["/nowhere/x.py"], "/nowhere/x.py"), (["no_such_module_here"], "no_such_module_here")])
def test_profiles_a_source_that_is_not_there_is_named(sources: list[str], word: str) -> None:
    with pytest.raises(SetupError, match=word):
        loaded(*sources)


def test_profiles_an_unknown_default_is_named_with_those_there_are() -> None:
    with pytest.raises(SetupError, match=r"'other'.*default, demo"):
        loaded(profile="other")
