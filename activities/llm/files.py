"""Files of messages as models are given them."""

import base64
import json

from pydantic_ai.framing import register_tag, wrap
from pydantic_ai.messages import BinaryContent, DocumentUrl, ImageUrl, UserContent

from activities.llm.text import well_formed
from workflows.model.attachment import Attachment
from workflows.rules.attachments import is_text

_ATTACHMENT = register_tag("attachment")


def is_words(file: Attachment) -> bool:
    """True for a file that is given as text: every model reads that, while few take such files."""
    return bool(file.data) and is_text(file.media_type)


def as_text(file: Attachment) -> str:
    """A text file in a block that no text can close, its name and type before its words. Bytes that are no UTF-8 are replaced."""
    words = base64.b64decode(file.data).decode("utf-8-sig", "replace")
    return wrap(_ATTACHMENT, f"{_label(file)}\n{well_formed(words)}")


def content_of_file(file: Attachment) -> list[UserContent]:
    """Any other file: its name and type in a block, then the file itself or where it is."""
    named = wrap(_ATTACHMENT, _label(file))
    if not file.url:
        return [named, BinaryContent(base64.b64decode(file.data), media_type=file.media_type)]
    where = ImageUrl if file.media_type.startswith("image/") else DocumentUrl
    return [named, where(file.url, media_type=file.media_type)]


def _label(file: Attachment) -> str:
    return json.dumps({"name": file.name, "media_type": file.media_type}, ensure_ascii=False)
