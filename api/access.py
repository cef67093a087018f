"""Who calls, what they may see, and which pages may change state."""

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import Depends, Request

from api.errors import not_found
from api.identity import Access
from settings import Settings
from workflows.contracts import telemetry
from workflows.model.session import Caller

_KNOWN = "outlast.caller"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_READS = ("GET", "HEAD", "OPTIONS")


async def identify(request: Request) -> Caller:
    """Who sent a request; found out, and counted, once a request. Raises as `Access.identify` does."""
    if _KNOWN not in request.scope:
        access: Access = request.app.state.api.access
        request.scope[_KNOWN] = await access.identify(request.headers)
    caller: Caller = request.scope[_KNOWN]
    telemetry.identify(tenant=caller.tenant, session_id=request.path_params.get("session_id"))
    return caller


CallerDep = Annotated[Caller, Depends(identify)]


def owner_filter(caller: Caller) -> str | None:
    """The owner whose rows a list shows; None shows the whole tenant (R40)."""
    return None if caller.is_admin else caller.principal


def may_see(caller: Caller, owner: str | None) -> bool:
    """Whether `caller` may see a session of that owner (R38). No owner: admins only."""
    return caller.is_admin or owner == caller.principal


def require_visible(caller: Caller, owner: str | None) -> None:
    """Raises the refusal of an absent session if `caller` may not see one of that owner."""
    if not may_see(caller, owner):
        raise not_found()


def origin_allowed(method: str, origin: str | None, host: str, settings: Settings) -> bool:
    """Whether a request may change state (R50).

    Always without an Origin header (not a page), else for the configured origins and for the API's own pages. In mode `local`
    nothing but the address vouches for a caller, so there the own address must be a loopback one: a name that a foreign page
    has pointed at this machine does not count.
    """
    if method in _READS or origin is None or origin in settings.access.origins:
        return True
    page = urlsplit(origin)
    if page.scheme not in ("http", "https") or page.netloc.lower() != host.lower():
        return False
    return not settings.access.by_address or page.hostname in (*_LOOPBACK, settings.api.host)
