"""Programs of a test: real processes, all gone at its end."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.processes import Programs
from tests.services import short_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path."""
    with short_folder("outlast-chaos") as folder:
        yield folder


@pytest.fixture
def programs(folder: Path) -> Iterator[Programs]:
    """Starts `outlast` commands; what still runs at the end of the test is killed."""
    programs = Programs(folder)
    try:
        yield programs
    finally:
        programs.finish()
