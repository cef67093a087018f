"""How far an erasure is, and its receipt."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from activities.db.pool import Database
from activities.db.reads import reading, sql


@dataclass(frozen=True, slots=True)
class Receipt:
    """What an erasure removed so far, its parts included, and when it was verified (None: it goes on).

    `principal` is whose data it was, `of_session` whether only one session's; `parts` and `parts_verified` count the sessions of a principal's erasure.
    """

    erasure_id: UUID
    tenant: str
    principal: str | None
    session_ids: tuple[str, ...]
    rows: dict[str, int]
    workflow_runs: int
    payloads: int
    of_session: bool
    parts: int
    parts_verified: int
    begun_at: datetime
    verified_at: datetime | None


async def find_receipt(database: Database, erasure_id: UUID) -> Receipt | None:
    """An erasure by its id, None if there is none. Raises ServiceUnavailable where Postgres is not there."""
    async with reading(database) as conn:
        row = await sql.find_erasure(conn, id=erasure_id)
        if row is None:
            return None
        rows = {each["name"]: each["rows"] async for each in sql.rows_erased_by_table(conn, id=erasure_id)}
    own = () if row["session_id"] is None else (row["session_id"],)
    return Receipt(
        erasure_id=erasure_id,
        tenant=row["tenant"],
        principal=row["principal"],
        session_ids=(*own, *row["parts"]),
        rows=rows,
        workflow_runs=row["workflow_runs"],
        payloads=row["payloads"],
        of_session=row["session_id"] is not None,
        parts=len(row["parts"]),
        parts_verified=row["parts_verified"],
        begun_at=row["begun_at"],
        verified_at=row["verified_at"],
    )


async def unfinished(database: Database, tenant: str, principal: str) -> UUID | None:
    """The erasure of a principal that has not come to its end, whether its workflow runs or not. Raises as `find_receipt` does."""
    async with reading(database) as conn:
        found: UUID | None = await sql.unfinished_principal_erasure(conn, tenant=tenant, principal=principal)
    return found


async def is_erased(database: Database, session_uid: str) -> bool:
    """Whether the rows of the session of this uid were removed. Raises as `find_receipt` does."""
    async with reading(database) as conn:
        return await sql.rows_erased(conn, id=session_uid) is not None


async def any_session(database: Database) -> bool:
    """Whether there is a session at all. Raises as `find_receipt` does."""
    async with reading(database) as conn:
        found: bool = await sql.any_session(conn)
    return found


async def count_sessions(database: Database, tenant: str, principal: str) -> int:
    """How many sessions a principal owns. Raises as `find_receipt` does."""
    async with reading(database) as conn:
        count: int = await sql.count_sessions_of(conn, tenant=tenant, principal=principal)
    return count


__all__ = ["Receipt", "any_session", "count_sessions", "find_receipt", "is_erased", "unfinished"]
