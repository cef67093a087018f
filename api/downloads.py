"""Answers that are files: sent piece by piece, and never whole in memory."""

from collections.abc import AsyncIterator

from api.stream import EventStream, StreamCut
from workflows.contracts.errors import OutlastError


class Download(EventStream):
    """A file. One that breaks off ends without HTTP's own end mark, as a stream of events does: no client takes it for whole."""


async def download(pieces: AsyncIterator[str], media_type: str, name: str) -> Download:
    """The answer. What goes wrong before the first piece is an answer of its own: nothing has been sent by then."""
    first = await anext(pieces, "")
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "Cache-Control": "no-store"}
    return Download(_rest(first, pieces), media_type=media_type, headers=headers)


async def _rest(first: str, pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    yield first.encode()
    try:
        async for piece in pieces:
            yield piece.encode()
    except OutlastError as error:
        raise StreamCut from error
