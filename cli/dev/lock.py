"""The lock of a data folder."""

import fcntl
import os
from pathlib import Path
from types import TracebackType

from workflows.contracts.errors import SetupError

FILE = "lock"


class FolderLock:
    """Held by the one `outlast dev` of a data folder. A kernel lock: it is gone with its process, however that ended.

    The file's content, the holder's process id, is there to name it and proves nothing.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._file = -1

    def __enter__(self) -> "FolderLock":
        """Makes the folder if it is missing, for its owner alone. Raises SetupError if another process holds it or it can't be written."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = self._path.read_text().strip() or "unknown"
            os.close(self._file)
            raise SetupError(f"{self._path.parent.absolute()} is in use by another `outlast dev`, process {holder}") from error
        except FileExistsError as error:
            raise SetupError(f"{self._path.parent.absolute()} is no folder") from error
        except OSError as error:
            raise SetupError(f"can't use {self._path.parent.absolute()}: {error.strerror or error}") from error
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode(), 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._file)
