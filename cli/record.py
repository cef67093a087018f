"""`dev.json`: what a running `outlast dev` is reachable at, for other commands on the same data folder."""

import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from cli.private import write_private
from workflows.contracts.errors import SetupError

FILE = "dev.json"


class DevRecord(BaseModel):
    """Addresses and process ids. `temporal` is `host:port`, `temporal_ui` empty where `outlast dev` uses a Temporal that it didn't start.

    `secrets` is the file with the signing and payload keys, which count where none are configured; empty if there is no such file.
    """

    model_config = ConfigDict(extra="ignore")

    api: str
    temporal: str
    temporal_ui: str = ""
    database_url: str
    pids: dict[str, int] = {}
    durable: bool = True
    secrets: str = ""

    def write(self, folder: Path) -> None:
        """Puts the record into the data folder. Raises SetupError."""
        write_private(folder / FILE, self.model_dump_json(indent=2) + "\n")


def read_record(folder: Path) -> DevRecord | None:
    """The record of a data folder, None if there is none. Raises SetupError for a file that isn't one."""
    path = folder / FILE
    try:
        return DevRecord.model_validate(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise SetupError(f"{path} can't be read: {why}") from error


def remove_record(folder: Path) -> None:
    """Forgets the record: nothing runs any more."""
    (folder / FILE).unlink(missing_ok=True)
