"""API keys: how they are made, kept and found."""

import hashlib
import hmac
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from activities.db.audit import Act, note
from activities.db.pool import Database
from activities.db.queries import load_queries

PREFIX = "olk_"
STAMP_EVERY = timedelta(minutes=1)
"""How exact `last_used_at` is."""

_KEY = re.compile(PREFIX + r"([0-9a-f]{12})_[A-Za-z0-9_-]{43}")
_NOTHING = bytes(32)
sql = load_queries()


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key as it is kept: `hash` is all that is known of its secret."""

    key_id: str
    hash: bytes
    tenant: str
    principal: str
    roles: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None

    def usable(self, now: datetime) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class ApiKeys:
    """The table of keys. Raises ServiceUnavailable where Postgres is not there."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(
        self, tenant: str, principal: str, roles: Sequence[str], *, now: datetime, expires_at: datetime | None, by: str
    ) -> tuple[str, ApiKey]:
        """Makes a key and returns it with its row. The key itself is nowhere else, so it can't be shown again."""
        key_id = secrets.token_hex(6)
        text = f"{PREFIX}{key_id}_{secrets.token_urlsafe(32)}"
        key = ApiKey(key_id, _hash(text), tenant, principal, tuple(roles), now, expires_at)
        facts = {"principal": principal, "roles": list(roles), "expires_at": expires_at and expires_at.isoformat()}
        async with self._database.transaction() as conn:
            await sql.add_api_key(
                conn,
                key_id=key_id,
                hash=key.hash,
                tenant=tenant,
                principal=principal,
                roles=list(roles),
                created_at=now,
                expires_at=expires_at,
            )
            await note(conn, Act("key_create", tenant, by, now, target=key_id, facts=facts))
        return text, key

    async def find(self, text: str, now: datetime) -> ApiKey | None:
        """The usable key that `text` is, None if it is none. Its use is noted, at most once a minute."""
        named = _KEY.fullmatch(text)
        if named is None:
            return None
        async with self._database.connection() as conn:
            row = await sql.find_api_key(conn, key_id=named[1])
            key = None if row is None else _key(row)
            same = hmac.compare_digest(_hash(text), _NOTHING if key is None else key.hash)
            if key is None or not same or not key.usable(now):
                return None
            if key.last_used_at is None or now - key.last_used_at >= STAMP_EVERY:
                await sql.stamp_api_key(conn, key_id=key.key_id, at=now, before=now - STAMP_EVERY)
        return key

    async def of_tenant(self, tenant: str | None) -> list[ApiKey]:
        """The keys of a tenant, or with None of all, oldest first. Revoked and expired ones too."""
        async with self._database.connection() as conn:
            return [_key(row) async for row in sql.list_api_keys(conn, tenant=tenant)]

    async def revoke(self, key_id: str, *, now: datetime, by: str) -> bool:
        """Ends a key, from the next request on. False if there is no such key, or it has been revoked before."""
        async with self._database.transaction() as conn:
            row = await sql.revoke_api_key(conn, key_id=key_id, at=now)
            if row is not None:
                await note(conn, Act("key_revoke", row["tenant"], by, now, target=key_id, facts={"principal": row["principal"]}))
        return row is not None


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _key(row: asyncpg.Record) -> ApiKey:
    return ApiKey(
        key_id=row["key_id"],
        hash=row["hash"],
        tenant=row["tenant"],
        principal=row["principal"],
        roles=tuple(row["roles"]),
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        last_used_at=row["last_used_at"],
        revoked_at=row["revoked_at"],
    )


__all__ = ["PREFIX", "ApiKey", "ApiKeys"]
