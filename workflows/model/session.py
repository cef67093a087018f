"""Who calls, and which session is meant."""

from workflows.model.base import Record

ROLES = ("admin", "service")
"""The roles that mean something. Others are left out."""


class Caller(Record):
    """Who stands behind an input, with those of ROLES that it has."""

    tenant: str = "default"
    principal: str = "local"
    roles: tuple[str, ...] = ()

    @property
    def is_admin(self) -> bool:
        """True if the caller administers its tenant."""
        return "admin" in self.roles


class SessionRef(Record):
    """Names one session. `session_uid` is never used twice; (`tenant`, `session_id`) is an alias that can be freed and taken again."""

    tenant: str
    session_id: str
    session_uid: str
