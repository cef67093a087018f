"""What is shown of a message's files: all but their bytes."""

import base64
import hashlib
from collections.abc import Sequence
from typing import Any

from workflows.contracts.json_text import json_text
from workflows.model.attachment import Attachment


def shown_files(files: Sequence[Attachment]) -> str | None:
    """The files of a message as its row shows them, as JSON text; None if there are none."""
    return json_text([_shown(file) for file in files]) if files else None


def _shown(file: Attachment) -> dict[str, Any]:
    shown = {"name": file.name, "media_type": file.media_type, "size": file.size, "digest": file.digest}
    if file.url:
        return shown | {"url": file.url}
    if file.size is None or file.digest is None:  # a signal that came past the api
        data = base64.b64decode(file.data)
        shown |= {"size": len(data), "digest": hashlib.sha256(data).hexdigest()}
    return shown
