"""Idempotency keys: which writes a client marked, and what they were answered."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from activities.db.pool import Database
from activities.db.reads import reading, sql

REMEMBERED = timedelta(hours=24)
"""How long a key is remembered."""


@dataclass(frozen=True, slots=True)
class KeyOf:
    """A key of a principal."""

    tenant: str
    principal: str
    key: str


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked: where, and the digest of all that it said."""

    route: str
    digest: str


@dataclass(frozen=True, slots=True)
class Reserved:
    """What stands under a key: the digest of the first request, since when, and its answer as JSON text if it has one.

    `of_session`: the answer is of a session, which `owner` owns now (None: only admins see it).
    """

    digest: str
    since: datetime
    answer: str | None
    of_session: bool
    owner: str | None


class Keys:
    """The table of idempotency keys. Raises ServiceUnavailable where Postgres is not there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def reserve(self, key: KeyOf, request: Request) -> Reserved:
        """Takes a key for a request, or says which one has it."""
        now = datetime.now(UTC)
        async with reading(self._database) as conn:
            await sql.forget_keys(conn, before=now - REMEMBERED)
            row = None
            names = {"tenant": key.tenant, "principal": key.principal, "key": key.key}
            while row is None:  # none: who had the key committed, or let go of it, in this very moment
                row = await sql.reserve_key(conn, **names, digest=request.digest, route=request.route, at=now)
        return Reserved(row["digest"], row["created_at"], row["answer"], row["of_session"], row["owner"])

    async def keep(self, key: KeyOf, request: Request, since: datetime, status: int, answer: str, session_uid: UUID | None) -> None:
        """Keeps the answer of the request that reserved the key at that time. With `session_uid` it goes with that session."""
        async with reading(self._database) as conn:
            await sql.keep_answer(
                conn,
                tenant=key.tenant,
                principal=key.principal,
                key=key.key,
                digest=request.digest,
                route=request.route,
                at=since,
                status=status,
                answer=answer,
                session_uid=session_uid,
            )

    async def release(self, key: KeyOf, since: datetime) -> None:
        """Frees a key whose request came to nothing."""
        async with reading(self._database) as conn:
            await sql.release_key(conn, tenant=key.tenant, principal=key.principal, key=key.key, at=since)
