"""How a command runs: signals, one line for an error, and the way out."""

import asyncio
import logging
import os
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NoReturn

import uvloop

from cli.output import OutputLost, last_words
from cli.tracing import traced
from settings import Settings
from workflows.contracts.errors import DatabaseUnavailableError, MigrationError, OutlastError

Program = Callable[[asyncio.Event], Awaitable[None]]
"""What runs until the event is set."""

INTERRUPTED = 130
NOBODY_READS = 141
"""What shells say of a program that SIGPIPE ended, as it ends most of those in front of a `head`."""


def run_until_stopped(program: Program, settings: Settings, service: str) -> NoReturn:
    """Runs `program` until it returns, or SIGINT or SIGTERM asks it to stop, then ends the process: 0, or 1 after an error.

    A second signal doesn't wait for anything. Where traces are on, they are `service`'s.
    """

    def run() -> None:
        with traced(settings, service):
            uvloop.run(_with_signals(program))

    leave(attempt(run))


def attempt(work: Callable[[], object]) -> int:
    """Does the work and returns the exit code: 0, 1 if it answers False, 130 for Ctrl-C, or that of an error (see `failed`)."""
    try:
        answer = work()
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        return failed(error)
    return 1 if answer is False else 0


def failed(error: Exception) -> int:
    """The exit code for an error: 1, and it is said in one line on stderr; 141 without a word where whoever read stdout went away."""
    if isinstance(error, OutputLost) and error.closed:
        return NOBODY_READS
    say_error(error)
    return 1


async def _with_signals(program: Program) -> None:
    stop = asyncio.Event()

    def asked() -> None:
        if stop.is_set():
            # Child processes hear of it from the kernel (services/process.py).
            leave(1)
        stop.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked)
    await program(stop)


def say_error(error: BaseException) -> None:
    """One line on stderr. The name of a class stands before those that rules name so (R1, R9), and before a fault that isn't one of ours, whose
    traceback is shown only with OUTLAST_LOG__LEVEL=debug.
    """
    text = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, OutlastError):
        text = f"internal error, {type(error).__name__}: {text}"
        if os.environ.get("OUTLAST_LOG__LEVEL", "").lower() == "debug":
            traceback.print_exception(error)
    elif isinstance(error, DatabaseUnavailableError | MigrationError):
        text = f"{type(error).__name__}: {text}"
    complain(text)


def complain(text: str) -> None:
    """The words as one line on stderr."""
    with suppress(OSError, ValueError):
        print(f"outlast: {' '.join(text.split())}", file=sys.stderr, flush=True)


def leave(code: int) -> NoReturn:
    """Ends the process without the interpreter's own end: threads of the Temporal client may crash in it after a worker has run."""
    logging.shutdown()
    if (lost := last_words()) is not None:
        code = code or failed(lost)
    with suppress(OSError, ValueError, AttributeError):  # none is there where it was closed before the start
        sys.stderr.flush()
    os._exit(code)
