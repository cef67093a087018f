"""What `outlast dev` says."""

import json
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from cli.output import OutputLost
from cli.record import DevRecord

EPHEMERAL = (
    "!! EPHEMERAL: Temporal keeps everything in memory and Postgres is temporary.\n"
    "!! Every session is lost when this process ends. Leave out --ephemeral to keep them."
)


@dataclass
class Screen:
    """Lines on stdout. A terminal that is gone is no reason to stop."""

    began: float = field(default_factory=time.monotonic)

    def say(self, text: str) -> None:
        """One line."""
        with suppress(OSError, ValueError, OutputLost):
            print(text, file=sys.stdout, flush=True)

    @contextmanager
    def step(self, name: str) -> "Iterator[list[str]]":
        """One progress line for a component once it is ready, with the time that it took and what the block put into the list."""
        began = time.monotonic()
        details: list[str] = []
        yield details
        self.say(f"  {name:<10} ready {time.monotonic() - began:5.2f} s  {' '.join(details)}".rstrip())

    def ready(self, record: DevRecord, data: str, mode: str) -> None:
        """Everything is there: where, and what to try first in the access mode."""
        self.say(f"ready in {time.monotonic() - self.began:.2f} s, state in {data if record.durable else 'memory only'}\n")
        self.say(f"  API              {record.api}")
        self.say(f"  API docs         {record.api}/docs")
        if record.temporal_ui:
            self.say(f"  Temporal Web UI  {record.temporal_ui}")
        self.say("\n  ".join(["\nTry it:", *trials(record.api, mode)]) + "\n")
        if not record.durable:
            self.say(EPHEMERAL)
        self.say("Ctrl-C stops everything.")


def command() -> str:
    """How this very command is typed from here: by its name where that is on the path, else by where it lies."""
    program, found = Path(sys.argv[0]).absolute(), shutil.which("outlast")
    if program.name != "outlast" or (found and Path(found).resolve() == program.resolve()):
        return "outlast"
    return str(program.relative_to(Path.cwd())) if program.is_relative_to(Path.cwd()) else str(program)


def trials(url: str, mode: str) -> list[str]:
    """Command lines to begin with in an access mode. With `jwt` the token is for the reader to get."""
    if mode == "local":
        return [sample(url), f"{command()} chat"]
    if mode == "header":
        return [f"{sample(url)} -H 'x-outlast-principal: me'"]
    make = [f"export OUTLAST_TOKEN=$({command()} keys create me)"] if mode == "key" else []
    return [*make, f'{sample(url)} -H "authorization: Bearer $OUTLAST_TOKEN"', f"{command()} chat"]


def sample(url: str) -> str:
    """A command line that runs a turn of the demo profile: a server tool, then a question to the host."""
    body = json.dumps({"profile": "demo", "content": "What time is it? Then open /orders"})
    return f"curl -N {url}/api/chat/stream -H 'content-type: application/json' -d '{body}'"
