"""Files for their owner's eyes alone."""

import os
from pathlib import Path

from workflows.contracts.errors import SetupError


def write_private(path: Path, text: str) -> None:
    """Writes a file, whole or not at all. Raises SetupError."""
    draft = path.with_name(f"{path.name}.new")
    try:
        draft.unlink(missing_ok=True)
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:  # noqa: PTH123
            file.write(text)
        draft.replace(path)
    except OSError as error:
        raise SetupError(f"{path} can't be written: {error.strerror or error}") from error


__all__ = ["write_private"]
