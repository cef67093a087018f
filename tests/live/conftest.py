"""A real language model for the tests of this folder. `make live` installs it; where it is not, this folder has no tests."""

import importlib.util
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.chaos.processes import Programs
from tests.live.serving import ModelServer
from tests.live.transcript import Transcript
from tests.services import short_folder

TRANSCRIPT = pytest.StashKey[Transcript]()

if importlib.util.find_spec("llama_cpp") is None:
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture
async def model(tmp_path: Path) -> AsyncIterator[ModelServer]:
    """The small model behind its own server."""
    server = ModelServer(tmp_path / "model.log")
    try:
        await server.ready()
        yield server
    finally:
        server.stop()


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for Unix sockets."""
    with short_folder("outlast-live") as folder:
        yield folder


@pytest.fixture
def programs(folder: Path) -> Iterator[Programs]:
    """Starts `outlast` commands; what still runs at the end of the test is killed."""
    programs = Programs(folder)
    try:
        yield programs
    finally:
        programs.finish()


@pytest.fixture
def transcript(pytestconfig: pytest.Config) -> Transcript:
    """The record of the conversation, which is printed at the end of the run."""
    return pytestconfig.stash.setdefault(TRANSCRIPT, Transcript())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="Also write the transcript of the live conversation to this file.")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int, config: pytest.Config) -> None:
    if (transcript := config.stash.get(TRANSCRIPT, None)) is None:
        return
    terminalreporter.write_line("")
    terminalreporter.write_line(transcript.page)
    file = config.getoption("--record", None)
    if file is not None and exitstatus == pytest.ExitCode.OK:
        file.write_text(transcript.page)
