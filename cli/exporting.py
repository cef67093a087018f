"""`outlast export`: a session as a file, straight from the database."""

import sys
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from cli.endpoints import find_endpoints, usable_database
from cli.options import operator
from settings import Settings
from workflows.contracts.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from activities.db.exports import Format


async def run_export(
    settings: Settings, session_id: str, *, tenant: str, format: "Format", leaf_id: str | None, output: Path | None
) -> None:
    """Writes a session to `output`, a file that is there only once it is whole, or a device or pipe; or to stdout. Raises OutlastError."""
    from activities.db.export_formats import Exportable, exported
    from activities.db.exports import Exports
    from activities.db.reads import Reads

    async with usable_database(find_endpoints(settings)) as database:
        exports = Exports(database)
        session = await Reads(database).session(tenant, session_id)
        if session is None:
            raise SetupError(f"there is no session {session_id!r} in tenant {tenant!r}")
        if leaf_id is not None and not await exports.has(session.session_uid, leaf_id):
            raise SetupError(f"there is no message {leaf_id!r} in session {session_id!r}")
        what = Exportable.of(session, leaf_id, format)
        facts = {"format": format, "leaf_id": what.leaf_id, "revision": session.revision}
        await exports.note(tenant, session.session_uid, operator(), datetime.now(UTC), facts)
        async with aclosing(exported(exports, what, format)) as pieces:
            await _write(pieces, output)


async def _write(pieces: "AsyncIterator[str]", output: Path | None) -> None:
    if output is None:
        if isinstance(sys.stdout, TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        await _into(sys.stdout, pieces)
        return
    # A device or a pipe takes it as it comes, and must not be replaced by a file.
    part = output if output.exists() and not output.is_file() else output.with_name(f".{output.name}.part")
    try:
        with part.open("w", encoding="utf-8") as file:
            await _into(file, pieces)
        if part != output:
            part.replace(output)
    except OSError as error:
        raise SetupError(f"{output} can't be written: {error.strerror or error}") from error
    finally:
        if part != output:
            with suppress(OSError):
                part.unlink(missing_ok=True)


async def _into(file: TextIO, pieces: "AsyncIterator[str]") -> None:
    async for piece in pieces:
        file.write(piece)
    file.flush()
