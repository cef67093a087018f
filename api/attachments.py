"""Files out of a request: decoded, measured, judged. Whatever becomes of them later, they are never looked into."""

import base64
import hashlib
import re
from typing import Any
from urllib.parse import unquote_to_bytes

from pydantic import ValidationError

from api.errors import RequestRefused
from api.schemas import AttachmentBody, HostContext
from settings import AttachmentSettings
from workflows.model.attachment import Attachment
from workflows.rules.attachments import MOST_BYTES, is_text, problem

_DATA_URI = re.compile(r"data:([^,;]*)((?:;[^,;]*)*),", re.I)


def files_of(bodies: list[AttachmentBody], settings: AttachmentSettings, where: str = "attachments") -> tuple[Attachment, ...]:
    """The files that a message names. Raises RequestRefused: 413 for one that is too large, 422 for what is not taken."""
    return tuple(_file(body, settings, f"{where}.{place}") for place, body in enumerate(bodies))


def host_files(context: HostContext | None, settings: AttachmentSettings) -> tuple[dict[str, Any] | None, tuple[Attachment, ...]]:
    """A host context as it is kept, and the files that it carries. Kept are their names, not their bytes. Raises as `files_of` does."""
    if context is None:
        return None, ()
    kept = context.model_dump(mode="json", exclude_unset=True)
    files: list[Attachment] = []
    for place, entry in enumerate(kept.get("attachments", ())):
        if not isinstance(entry, dict) or not _carries(entry):
            continue
        where = f"host_context.attachments.{place}"
        try:
            body = AttachmentBody.model_validate(entry)
        except ValidationError as error:
            first = error.errors()[0]
            raise _refused(f"{where}.{'.'.join(map(str, first['loc']))}", first["msg"].removeprefix("Value error, ")) from error
        file = _file(body, settings, where)
        files.append(file)
        kept["attachments"][place] = {"name": file.name, "media_type": file.media_type, "size": file.size, "digest": file.digest}
    return kept, tuple(files)


def _carries(entry: dict[str, Any]) -> bool:
    """Whether an entry of a host context brings a file, rather than a word about one."""
    return "data" in entry or str(entry.get("url", "")).lower().startswith("data:")


def _file(body: AttachmentBody, settings: AttachmentSettings, where: str) -> Attachment:
    given = (body.media_type or "").partition(";")[0].strip().lower()
    source = body.data if body.data is not None else body.url or ""
    if body.url is not None and not source.lower().startswith("data:"):
        file = Attachment(name=body.name, media_type=given, url=source)
    else:
        media_type, data = _decoded(source, where)
        file = _measured(body.name, given or media_type, data, where)
        if given and media_type and given != media_type:
            raise _refused(where, f"is {media_type} by its data URI and {given} by its media_type")
    if wrong := problem(file, settings.media_types, allow_urls=settings.allow_urls):
        raise _refused(where, wrong)
    return file


def _measured(name: str, media_type: str, data: bytes, where: str) -> Attachment:
    if len(data) > MOST_BYTES:
        raise RequestRefused(413, f"{where}: is over {MOST_BYTES} bytes")
    if not data:
        raise _refused(where, "is empty")
    if is_text(media_type):
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise _refused(where, "is text, but not in UTF-8") from error
    digest = hashlib.sha256(data).hexdigest()
    return Attachment(name=name, media_type=media_type, data=base64.b64encode(data).decode(), size=len(data), digest=digest)


def _decoded(source: str, where: str) -> tuple[str, bytes]:
    """Media type (empty if it isn't said) and bytes of a data URI, or of bare base64."""
    head = _DATA_URI.match(source)
    body = source[head.end() :] if head else source
    media_type, parameters = (head[1].strip().lower(), head[2].lower()) if head else ("", ";base64")
    if not parameters.endswith(";base64"):
        return media_type or "text/plain", unquote_to_bytes(body)
    try:
        return media_type, base64.b64decode(unquote_to_bytes(body) if "%" in body else body, validate=True)
    except ValueError as error:
        raise _refused(where, "is not base64") from error


def _refused(where: str, what: str) -> RequestRefused:
    return RequestRefused(422, f"{where}: {what}")
