"""The end of a session as activities. Each may run again at any point, and nothing that was counted is lost by that."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.beating import beating
from activities.db.erasures import find_receipt
from activities.db.queries import allowed
from activities.db.session_tx import moment, sql
from activities.kit import Kit
from activities.leftovers import Leftovers, StillInFlight
from activities.patience import patiently
from activities.projection.audit import note_act
from activities.running import guarded
from activities.runs import Runs
from workflows.contracts.erasures import DeleteRuns, Erased, EraseHistories, ErasePayloads, EraseRows, FoundRuns, VerifyErasure
from workflows.contracts.errors import STILL_THERE
from workflows.contracts.json_text import json_text

ROWS_SECONDS = 100.0
"""How long a statement may take that removes a session's rows: those of a very long one take longer than Postgres has to answer elsewhere."""


class Erasures:
    """Rows, runs, payloads, and the look whether anything is left."""

    def __init__(self, kit: Kit, client: Client) -> None:
        self._kit = kit
        self._client = client

    @activity.defn
    async def erase_rows(self, erase: EraseRows) -> Erased:
        """Removes a session's rows; readers of its events are woken and find it gone."""
        async with beating():
            return await guarded(patiently(lambda: self._erase_rows(erase)))

    async def _erase_rows(self, erase: EraseRows) -> Erased:
        """Counts, notes who did it, and deletes, all or nothing. Who comes again, his answer having been lost, reads what was counted."""
        with allowed(ROWS_SECONDS):
            return await self._rows_gone(erase)

    async def _rows_gone(self, erase: EraseRows) -> Erased:
        session, uid = erase.session, erase.session.session_uid
        async with self._kit.db.transaction() as conn:
            await sql.take_session(conn, session_uid=uid)
            if (counted := await sql.rows_erased(conn, id=uid)) is not None:
                return Erased(rows=json.loads(counted))
            rows = await _rows_of(conn, uid)
            owner = await sql.owner_of(conn, session_uid=uid)
            await sql.note_erasure(
                conn,
                id=uid,
                tenant=session.tenant,
                session_id=session.session_id,
                principal=owner,
                rows=json_text(rows),
                begun_at=moment(erase.at),
            )
            if rows["sessions"]:
                await note_act(conn, session, "erase" if erase.by else "expire", erase.by, erase.at, {"rows": rows})
            await sql.delete_session(conn, session_uid=uid, note=json_text({"s": uid, "e": 0}))
        return Erased(rows=rows)

    def _leftovers(self, workflow_id: str) -> Leftovers:
        return Leftovers(self._kit.storage.stores(self._client.namespace), self._client, workflow_id)

    @activity.defn
    async def find_runs(self, erase: EraseHistories) -> FoundRuns:
        """Follows the chain of runs back from the last one, and asks for others that carried the session's uid."""
        async with beating():
            runs = Runs(self._client, erase.workflow_id)
            for run_id in erase.run_ids:
                if await runs.is_open(run_id):
                    raise still_there("the session's workflow has not ended yet")
            ends = [*erase.run_ids, *await runs.closed(erase.session_uid, moment(erase.before))]
            found = {run_id: None for end in ends async for run_id in runs.chain(end)}
            return FoundRuns(run_ids=tuple(found))

    @activity.defn
    async def delete_runs(self, delete: DeleteRuns) -> None:
        """Asks Temporal to remove runs and looks whether it has."""
        async with beating():
            runs = Runs(self._client, delete.workflow_id)
            for run_id in delete.run_ids:
                await runs.delete(run_id)
            if left := [run_id for run_id in delete.run_ids if await runs.is_there(run_id)]:
                raise still_there(f"Temporal still removes {len(left)} of {len(delete.run_ids)} runs")

    @activity.defn
    async def erase_payloads(self, erase: ErasePayloads) -> None:
        """Removes what the session's runs refer to, or what no other session under the same workflow id does."""
        async with beating():
            leftovers, now = self._leftovers(erase.erase.workflow_id), datetime.now(UTC)
            try:
                found = await (leftovers.of_runs(erase.run_ids) if erase.run_ids else leftovers.of_ended(moment(erase.erase.before), now))
            except StillInFlight as error:
                raise still_there(str(error)) from error
            await leftovers.remove(found, erase.erase.session_uid)

    @activity.defn
    async def verify_erasure(self, verify: VerifyErasure) -> Erased:
        """Rows, runs, payloads: looks at each again, and writes the receipt if there is none."""
        async with beating():
            erase, uid = verify.erase, verify.erase.session_uid
            async with self._kit.db.connection() as conn:
                rows = await _rows_of(conn, uid)
            now = datetime.now(UTC)
            runs = await self.find_runs(erase)
            left = await self._leftovers(erase.workflow_id).of_ended(moment(erase.before), now)
            payloads = sum(map(len, left.values()))
            if any(rows.values()) or runs.run_ids or payloads:
                return Erased(rows=rows, workflow_runs=len(runs.run_ids), payloads=payloads)
            async with self._kit.db.connection() as conn:
                await sql.verify_erasure(conn, id=uid, workflow_runs=verify.workflow_runs, at=now)
            receipt = await find_receipt(self._kit.db, UUID(uid))
            assert receipt is not None, "who erased the rows made it"
            return Erased(rows=receipt.rows, workflow_runs=receipt.workflow_runs, payloads=receipt.payloads, verified=True)


async def _rows_of(conn: Any, session_uid: str) -> Mapping[str, int]:
    return {row["name"]: row["rows"] async for row in sql.count_session_rows(conn, session_uid=session_uid)}


def still_there(what: str) -> ApplicationError:
    """Not a fault but a reason to look again, and nothing to log."""
    return ApplicationError(what, type=STILL_THERE, category=ApplicationErrorCategory.BENIGN)
