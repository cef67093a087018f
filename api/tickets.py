"""Stream tickets: a browser's `EventSource` sends no headers, so for a short time a session's events are read by a signed query parameter."""

import inspect
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated
from uuid import UUID

from fastapi import Depends, Query, Request

from api.access import identify
from api.answers import StreamTicket
from api.deps import Api, ApiDep
from api.errors import RequestRefused
from api.signing import TokenInvalid
from workflows.model.session import Caller


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads events. A ticket is good for one session only, `session_uid`."""

    caller: Caller
    session_uid: UUID | None = None

    def may_read(self, session_uid: UUID) -> bool:
        """Whether this is a session that the reader's ticket is for. Without a ticket the caller alone decides."""
        return self.session_uid in (None, session_uid)


def issue(api: Api, caller: Caller, session_uid: UUID) -> StreamTicket:
    """A ticket with which anyone reads the session's events as `caller` would."""
    expires = datetime.now(UTC) + timedelta(seconds=api.settings.stream_ticket_ttl_seconds)
    said = {"tenant": caller.tenant, "sub": caller.principal, "roles": list(caller.roles), "session": str(session_uid)}
    return StreamTicket(ticket=api.keyring.sign("stream ticket", said, expires), expires_at=expires)


async def reader(
    request: Request,
    api: ApiDep,
    ticket: Annotated[str | None, Query(description="A stream ticket, in place of every header that says who calls")] = None,
) -> Reader:
    """Who reads: the one whose ticket it is, in every access mode, else whoever calls. Raises RequestRefused (401) for a ticket that is none (any more)."""
    if ticket is None:
        return Reader(await _caller(request))
    try:
        said = api.keyring.verify("stream ticket", ticket)
    except TokenInvalid as error:
        raise RequestRefused(401, f"{error}: take a new one from POST /api/sessions/{{id}}/stream-ticket", "invalid_ticket") from error
    return Reader(Caller(tenant=said["tenant"], principal=said["sub"], roles=tuple(said["roles"])), UUID(said["session"]))


async def _caller(request: Request) -> Caller:
    """As the dependency `identify` would say; it is not declared as one because a request with a ticket needs no identity."""
    found = request.app.dependency_overrides.get(identify, identify)(request)
    caller: Caller = await found if inspect.isawaitable(found) else found
    return caller


ReaderDep = Annotated[Reader, Depends(reader)]
