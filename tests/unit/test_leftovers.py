"""What a test leaves in its process is seen when it ends, or given back."""

import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path

import pytest

from tests.leftovers import given_back, left, state
from workflows.contracts import policies, telemetry


def environment(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setenv("LEFT_BEHIND", "x")


def folder(monkeypatch: pytest.MonkeyPatch, elsewhere: Path) -> None:
    monkeypatch.chdir(elsewhere)


def constant(monkeypatch: pytest.MonkeyPatch, _: Path) -> None:
    monkeypatch.setattr(policies, "BEAT_EVERY_SECONDS", 0.1)


def ids(_: pytest.MonkeyPatch, __: Path) -> None:
    telemetry.identify(session_id="s1")


@pytest.mark.parametrize(
    ("leave", "said"),
    [
        (environment, "environment variable LEFT_BEHIND: None became 'x'"),
        (folder, "process working folder: "),
        (constant, "constant workflows.contracts.policies.BEAT_EVERY_SECONDS: "),
        (ids, "context variable outlast_ids: None became {'session_id': 's1'}"),
    ],
)
def test_what_a_test_leaves_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, leave: Callable[[pytest.MonkeyPatch, Path], None], said: str
) -> None:
    def found() -> list[str]:
        before = state()
        assert left(before, state()) == []
        leave(monkeypatch, tmp_path)
        return left(before, state())

    (line,) = copy_context().run(found)
    assert line.startswith(said)


def test_a_signal_handler_that_stays_is_named() -> None:
    before = state()
    was = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    try:
        (line,) = left(before, state())
    finally:
        signal.signal(signal.SIGUSR1, was)
    assert line.startswith("handler of signal SIGUSR1: ")


def test_what_is_set_up_for_a_whole_process_is_given_back() -> None:
    root, new = logging.getLogger(), logging.getLogger(f"{__name__}.new")
    before = (root.level, list(root.handlers), list(sys.path))
    with given_back():
        logging.basicConfig(level=logging.DEBUG, handlers=[logging.NullHandler()], force=True)
        new.setLevel(logging.ERROR)
        new.propagate, new.disabled = False, True
        sys.path.append(os.sep)
        gc.freeze()
    assert (root.level, root.handlers, sys.path) == before
    assert (new.level, new.propagate, new.disabled) == (logging.NOTSET, True, False)
    assert gc.get_freeze_count() == 0
