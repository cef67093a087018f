"""Which files a message may bring."""

import re
from collections.abc import Collection, Sequence

from workflows.contracts.errors import Refusal
from workflows.model.attachment import Attachment

MOST_FILES = 16
"""Files of a message, and as many of its host context."""

MOST_BYTES = 12_000_000
"""Bytes of one file. In base64 it just fits into a request."""

MOST_NAME = 255
_MEDIA_TYPE = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
_BASE64 = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_TEXTS = ("application/json", "application/xml", "application/yaml")


def is_text(media_type: str) -> bool:
    """True for files that a model reads as words."""
    return media_type.startswith("text/") or media_type in _TEXTS or media_type.endswith(("+json", "+xml"))


def check_files(files: Sequence[Attachment]) -> None:
    """Refuses what no row could hold and no model could read. The api checks this before; a signal comes past it."""
    if len(files) > 2 * MOST_FILES:
        raise Refusal("bad_request", f"a message has at most {MOST_FILES} attachments, and its host context as many")
    for file in files:
        if not _MEDIA_TYPE.fullmatch(file.media_type) or len(file.name) > MOST_NAME or "\x00" in file.name:
            raise Refusal("bad_request", "an attachment has a media type such as image/png, and a name of at most 255 characters")
        if bool(file.data) == bool(file.url):
            raise Refusal("bad_request", "an attachment has either data or a URL")
        if len(file.data) % 4 or not _BASE64.fullmatch(file.data) or len(file.data) // 4 * 3 > MOST_BYTES + 2:
            raise Refusal("bad_request", f"an attachment's data is base64 of at most {MOST_BYTES} bytes")


def problem(file: Attachment, media_types: Collection[str], *, allow_urls: bool) -> str | None:
    """Why this installation does not take a file; None if it does."""
    if file.url and not allow_urls:
        return "a URL is not taken (OUTLAST_ATTACHMENTS__ALLOW_URLS); send the file as a data URI"
    if not file.media_type:
        return "which type it has is not said; `media_type` does, such as image/png"
    if file.media_type not in media_types:
        return f"files of type {file.media_type} are not taken; there are {', '.join(sorted(media_types))}"
    if file.url and (is_text(file.media_type) or not file.url.startswith(("https://", "http://"))):
        return "only images and documents can be named by an http or https URL"
    return None
