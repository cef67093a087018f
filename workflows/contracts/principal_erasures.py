"""The erasure of all that is a person's: their sessions, page by page, each by an erasure of its own."""

from temporalio import activity

from workflows.model.base import Record
from workflows.model.session import SessionRef


class ErasePrincipal(Record):
    """All sessions that a principal owns and that began before the erasure did, `at` (ISO 8601). Asked for `by` somebody."""

    erasure_id: str
    tenant: str
    principal: str
    by: str
    at: str = ""


class FoundSessions(Record):
    """Some of the sessions that are left; none: that's all."""

    sessions: tuple[SessionRef, ...] = ()


class EraseSessions(Record):
    """Sessions that are deleted as parts of an erasure."""

    erasure_id: str
    by: str
    sessions: tuple[SessionRef, ...]


class PrincipalErased(Record):
    """`verified`: every part is, and no session that began before is left."""

    verified: bool = False


@activity.defn
async def begin_principal_erasure(erase: ErasePrincipal) -> None:
    """Notes that it began and who asked, and removes what is the principal's beside sessions. Twice is once."""
    raise NotImplementedError


@activity.defn
async def find_sessions(erase: ErasePrincipal) -> FoundSessions:
    """A page of the sessions that are left."""
    raise NotImplementedError


@activity.defn
async def erase_sessions(erase: EraseSessions) -> None:
    """Deletes sessions through their workflows, as `DELETE` does. One that is gone already is no fault."""
    raise NotImplementedError


@activity.defn
async def verify_principal_erasure(erase: ErasePrincipal) -> PrincipalErased:
    """Fails, to be repeated, until every part is verified; then looks again for sessions."""
    raise NotImplementedError
