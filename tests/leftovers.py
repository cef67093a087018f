"""What a test may not leave in its process: which one comes next is decided by chance, and it would pass or fail for it."""

import contextvars
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

State = Mapping[str, Mapping[object, object]]

OURS = ("activities", "api", "cli", "profiles", "settings", "worker", "workflows")
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGCHLD)


def state() -> State:
    """What each test has to find as the one before it found it."""
    return {
        "environment variable": {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"},
        "process": {"working folder": Path.cwd(), "time zone": time.tzname},
        "handler of signal": {number.name: signal.getsignal(number) for number in SIGNALS},
        "context variable": {var.name: value for var, value in contextvars.copy_context().items() if value and _watched(var)},
        "constant": dict(_constants()),
    }


def left(before: State, after: State) -> list[str]:
    """What differs, a line each. A constant of a module that was not there before is no difference."""
    return [
        f"{kind} {name}: {before[kind].get(name)!r} became {after[kind].get(name)!r}"
        for kind in before
        for name in {**before[kind], **after[kind]}
        if before[kind].get(name) is not after[kind].get(name)
        and before[kind].get(name) != after[kind].get(name)
        and not (kind == "constant" and name not in before[kind])
    ]


@contextmanager
def given_back() -> Iterator[None]:
    """What code under test sets up once for the whole process ends with the block: logging, where modules are found, what is not collected."""
    loggers, path = {logger: _set_up(logger) for logger in _loggers()}, list(sys.path)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger in _loggers():
            # A logger that is new keeps the handlers that its library gave it.
            level, propagates, disabled, handlers = loggers.get(logger, (logging.NOTSET, True, False, logger.handlers))
            logger.setLevel(level)
            logger.propagate, logger.disabled, logger.handlers = propagates, disabled, list(handlers)
        sys.path[:] = path
        if gc.get_freeze_count():
            gc.unfreeze()


def _watched(var: contextvars.ContextVar[object]) -> bool:
    """Ours, and the span that code runs in."""
    return var.name.startswith(("outlast_", "current_context"))


def _constants() -> Iterator[tuple[str, object]]:
    """What modules of ours name in capitals. Threads may import more at any time."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in OURS:
            there = vars(module)
            yield from ((f"{name}.{constant}", there.get(constant)) for constant in _capitals(name, len(there)))


@cache
def _capitals(module: str, _size: int) -> list[str]:
    """A look through all the names of all modules takes a millisecond, and there are two looks a test."""
    return [name for name in list(vars(sys.modules[module])) if name.isupper()]


def _loggers() -> list[logging.Logger]:
    known = list(logging.Logger.manager.loggerDict.values())
    return [logging.getLogger(), *(logger for logger in known if isinstance(logger, logging.Logger))]


def _set_up(logger: logging.Logger) -> tuple[int, bool, bool, list[logging.Handler]]:
    return logger.level, logger.propagate, logger.disabled, list(logger.handlers)
