"""A file that comes with a message."""

from workflows.model.base import Record


class Attachment(Record):
    """A file. `data` is its bytes in base64, or `url` where it is instead; `size` (bytes) and `digest` (SHA-256, hex) are of the bytes."""

    name: str = ""
    media_type: str = ""
    data: str = ""
    url: str = ""
    size: int | None = None
    digest: str | None = None
