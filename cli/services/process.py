"""Child processes that end with the process that started them."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from workflows.contracts.errors import SetupError

_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1
_LOG_BYTES = 5_000_000
"""A log that is larger when its program starts is put aside."""

_KEPT = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER")


@dataclass(frozen=True)
class Account:
    """The system account that a child runs under instead of root."""

    name: str
    uid: int
    gid: int


def spawn(
    command: Sequence[str | Path],
    *,
    log: Path,
    last_will: signal.Signals,
    cwd: Path | None = None,
    account: Account | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a program in a session of its own, so that Ctrl-C in the terminal reaches us alone, with its output appended to `log`.

    On Linux the kernel sends it `last_will` when the thread that called this is gone, whichever way that went; call it
    from a thread that lasts (the main one). Raises SetupError if the program can't be started.
    """
    parent = os.getpid()
    try:
        if log.exists() and log.stat().st_size > _LOG_BYTES:
            log.replace(log.with_suffix(".old.log"))
        with log.open("ab") as output:
            return subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=dict(env) if env is not None else plain_environment(),
                start_new_session=True,
                user=account.uid if account else None,
                group=account.gid if account else None,
                extra_groups=[] if account else None,
                preexec_fn=lambda: end_with(parent, last_will),
            )
    except OSError as error:
        raise SetupError(f"can't start {command[0]}: {error.strerror or error}") from error


def end_with(parent: int, last_will: signal.Signals) -> None:
    """Asks the kernel to send `last_will` when `parent` is gone. Runs in the child, after it changed its user: a change of user would have cleared the wish."""
    if _LIBC is None:
        return
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(last_will), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def plain_environment() -> dict[str, str]:
    """What a service needs of our environment. Variables that would configure it behind our back (PGPORT, TEMPORAL_…) and secrets stay here."""
    return {key: os.environ[key] for key in _KEPT if key in os.environ}


def end(process: subprocess.Popen[bytes], *signals: tuple[signal.Signals, float]) -> int:
    """Sends the signals one after the other, each with its patience in seconds, until the process is gone; SIGKILL at last.

    Returns its exit code.
    """
    for wanted, patience in signals:
        if process.poll() is None:
            process.send_signal(wanted)
            # A stopped process takes no notice of anything but SIGKILL until it is continued.
            process.send_signal(signal.SIGCONT)
        try:
            return process.wait(patience)
        except subprocess.TimeoutExpired:
            continue
    process.kill()
    return process.wait()


def send(process: psutil.Process, wanted: signal.Signals) -> None:
    """Sends a process a signal, if it is still there. After a SIGSTOP it does nothing more by the time that this returns, which is a while
    after the kernel took the signal where a machine has much to do.
    """
    with suppress(psutil.NoSuchProcess):
        process.send_signal(wanted)
        while wanted == signal.SIGSTOP and not _stands_still(process):
            time.sleep(0.001)


def _stands_still(process: psutil.Process) -> bool:
    """Whether it is stopped, or gone; on Linux each thread of it, since one may be at the end of what it asked of the kernel."""
    parts = [thread.id for thread in process.threads()] if sys.platform == "linux" else [process.pid]
    return all(_state(part) in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD) for part in parts)


def _state(part: int) -> str:
    try:
        return str(psutil.Process(part).status())
    except psutil.NoSuchProcess:
        return psutil.STATUS_DEAD


def wait_for(process: subprocess.Popen[bytes], ready: Callable[[], bool], *, name: str, log: Path, seconds: float) -> None:
    """Returns when `ready()` is true.

    Raises SetupError with the end of the log if the process ends first or `seconds` are over (the process is killed then).
    """
    deadline = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None:
            raise SetupError(f"{name} ended with code {process.returncode} while starting: {last_line(log)} (log: {log})")
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise SetupError(f"{name} was not ready within {seconds:g} s: {last_line(log)} (log: {log})")
        time.sleep(0.01)


def last_line(log: Path) -> str:
    """The last line of a log that isn't empty."""
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return "no log"
    return next((line.strip() for line in reversed(lines) if line.strip()), "the log is empty")
