"""Stdout that says what became of it: a disk that is full, or a reader that went away, is told from every other fault."""

import io
import sys
from typing import Any

from workflows.contracts.errors import OutlastError


class OutputLost(OutlastError):
    """Stdout takes no more. `closed`: whoever read it went away, as `head` does, which is no fault and needs no words."""

    def __init__(self, error: OSError) -> None:
        super().__init__(f"stdout can't be written: {error.strerror or error}")
        self.closed = isinstance(error, ConnectionError)


class _Out(io.FileIO):
    lost = False

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.lost = True
            raise OutputLost(error) from error


def watch_stdout() -> None:
    """From now on what can't be written to stdout is OutputLost, whoever prints it. Nothing, where there is no stdout."""
    out = sys.stdout
    if not isinstance(out, io.TextIOWrapper):
        return
    raw = io.BufferedWriter(_Out(out.fileno(), "wb", closefd=False))
    sys.stdout = io.TextIOWrapper(
        raw, encoding=out.encoding, errors=out.errors, line_buffering=out.line_buffering, write_through=out.write_through
    )


def last_words() -> OutputLost | None:
    """Writes what is still to be written to stdout. The reason why that could not be, unless it is known already."""
    raw = getattr(getattr(sys.stdout, "buffer", None), "raw", None)
    known = isinstance(raw, _Out) and raw.lost
    try:
        sys.stdout.flush()
    except OutputLost as error:
        return None if known else error
    except (OSError, ValueError, AttributeError):  # none is there where it was closed before the start
        pass
    return None


__all__ = ["OutputLost", "last_words", "watch_stdout"]
