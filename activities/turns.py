"""The writes of a turn that need no model, as activities; and where the rows say a session stands."""

import asyncio
import json
from collections.abc import Awaitable
from datetime import timedelta
from typing import Any

from temporalio import activity

from activities.beating import beating
from activities.db.erasures import is_erased
from activities.db.session_tx import SessionGone, moment, now_text, sql
from activities.kit import Kit
from activities.patience import patiently
from activities.projection.announcing import announce_once, announce_refused
from activities.projection.between import hand_over, note_steering, repair_calls
from activities.projection.lost import closed_before, end_from_outside, end_leftover, over_before
from activities.projection.pending import current_batch
from activities.running import guarded
from workflows.contracts.errors import Refusal
from workflows.contracts.turns import (
    CallsRepaired,
    EndTurn,
    HandOver,
    LoadHead,
    NoteSteering,
    RecordRefusal,
    RepairCalls,
    SteeringNoted,
    TurnEnded,
)
from workflows.model.call import OpenCall
from workflows.model.session import SessionRef
from workflows.model.state import Batch, Binding, Head, LastTurn
from workflows.model.turn import TurnConfig, TurnError, TurnRef

BEGUN_SECONDS = 15.0
"""How long steering waits for a session's first turn to begin: so long may it take until a worker that lost it is replaced (R88)."""

BEGUN_AGAIN_SECONDS = 0.1


class Turns:
    """Writes that the workflow asks for between steps."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    @activity.defn
    async def hand_over(self, step: HandOver) -> TurnEnded:
        """Records a result in the middle of a batch and shows the next call, in one transaction (R124)."""
        async with beating():
            return await guarded(self._unless_refused(step.session, step.turn, patiently(lambda: self._hand_over(step))))

    async def _unless_refused(self, session: SessionRef, turn: TurnRef, write: Awaitable[TurnEnded]) -> TurnEnded:
        try:
            return await write
        except Refusal as refusal:
            await announce_refused(self._kit.db, session, turn, refusal)
            return TurnEnded(refused=True, refused_code=refusal.code, refused_why=refusal.message, at=now_text())

    async def _hand_over(self, step: HandOver) -> TurnEnded:
        async with self._kit.session(step.session, step.turn.turn_id) as tx:
            await hand_over(tx, step)
            return TurnEnded(at=step.turn.accepted_at, expires_at=tx.expiry)

    @activity.defn
    async def end_turn(self, end: EndTurn) -> TurnEnded:
        """Ends a turn that its step can't end; an ended turn stays as it is."""
        async with beating():
            return await guarded(self._unless_refused(end.session, end.turn, patiently(lambda: self._end_turn(end))))

    async def _end_turn(self, end: EndTurn) -> TurnEnded:
        at = now_text()
        try:
            async with self._kit.session(end.session, end.turn.turn_id, end.opening.birth if end.opening else None) as tx:
                if tx.is_over(end.turn.attempt):
                    return await over_before(tx, end)
                closed = await closed_before(tx, end)
                return (await end_from_outside(tx, end, at)).model_copy(update={"closed": closed})
        except SessionGone:
            return TurnEnded(at=at)

    @activity.defn
    async def repair_calls(self, repair: RepairCalls) -> CallsRepaired:
        """Resolves everything that is open as `unknown`, in one transaction (R137, R138)."""
        async with beating():
            return await guarded(patiently(lambda: self._repair_calls(repair)))

    async def _repair_calls(self, repair: RepairCalls) -> CallsRepaired:
        async with self._kit.session(repair.session) as tx:
            return await repair_calls(tx, repair)

    @activity.defn
    async def note_steering(self, steering: NoteSteering) -> SteeringNoted:
        """Stores steering as pending and tells where it arrived."""
        async with beating():
            return await guarded(self._once_begun(steering))

    async def _once_begun(self, steering: NoteSteering) -> SteeringNoted:
        """Steering that came on the heels of a session's first message waits a moment for the row that this one's turn makes.

        Raises SessionGone if there is none by then, or if the session was erased.
        """
        clock = asyncio.get_running_loop().time
        last = clock() + BEGUN_SECONDS
        while True:
            try:
                return await patiently(lambda: self._note_steering(steering))
            except SessionGone:
                if await is_erased(self._kit.db, steering.session.session_uid) or clock() > last:
                    raise
                await asyncio.sleep(BEGUN_AGAIN_SECONDS)

    async def _note_steering(self, steering: NoteSteering) -> SteeringNoted:
        async with self._kit.session(steering.session) as tx:
            await note_steering(tx, steering)
            newest = await sql.newest_turn(tx.conn, session_uid=tx.uid)
            batch = await sql.current_batch(tx.conn, session_uid=tx.uid)
            known = await sql.known_steering(tx.conn, session_uid=tx.uid, id=steering.id)
        return SteeringNoted(
            newest_turn=newest["turn_id"] if newest else None,
            newest_attempt=newest["attempt"] if newest else 0,
            running_profile=newest["profile"] if newest and newest["state"] == "running" else None,
            waiting=batch is not None,
            taken=known["delivered"],
        )

    @activity.defn
    async def record_refusal(self, refused: RecordRefusal) -> None:
        """Announces a refused signal to the session's readers."""
        async with beating():
            await guarded(patiently(lambda: self._record_refusal(refused)))

    async def _record_refusal(self, refused: RecordRefusal) -> None:
        refusal = refused.refusal
        try:
            async with self._kit.session(refused.session) as tx:
                data = {"what": refusal.what, "code": refusal.code, "message": refusal.message}
                await announce_once(tx, "input.refused", moment(refusal.at), data)
        except SessionGone:
            activity.logger.info("a refused signal is not announced: its session has no row yet")

    @activity.defn
    async def load_head(self, which: LoadHead) -> Head:
        """Where the rows say the session stands; an unborn head if there are none."""
        async with beating():
            return await guarded(patiently(lambda: self._load_head(which)))

    async def _load_head(self, which: LoadHead) -> Head:
        blank = Head(
            default_profile=self._kit.profiles.default.name,
            indexed=self._kit.indexed,
            may_expire=self._kit.settings.session_ttl_hours > 0,
            hold_while_pending=self._kit.settings.session_hold_while_pending,
        )
        async with self._kit.db.connection() as conn:
            found = await sql.find_head(conn, tenant=which.tenant, session_id=which.session_id)
        if found is None:
            return blank
        uid = str(found["session_uid"])
        await self._end_leftover(SessionRef(tenant=which.tenant, session_id=which.session_id, session_uid=uid))
        async with self._kit.db.connection() as conn:
            row = await sql.find_head(conn, tenant=which.tenant, session_id=which.session_id)
            newest = await sql.newest_turn(conn, session_uid=uid)
            return Head(
                session_uid=uid,
                owner=row["owner"],
                binding=Binding(profile=row["profile"], subject=row["subject"]),
                default_profile=blank.default_profile,
                indexed=blank.indexed,
                hung_under=found["hung_under"],
                expires_at=row["expires_at"].isoformat() if row["expires_at"] and self._kit.settings.session_ttl_hours else "",
                may_expire=blank.may_expire,
                hold_while_pending=blank.hold_while_pending,
                leaf_id=row["active_leaf_id"],
                revision=row["revision"],
                turn_number=row["turn_number"],
                batch=await _batch(conn, uid, newest),
                last_turn=_last_turn(newest) if newest and newest["message_id"] == row["active_leaf_id"] else None,
            )

    async def _end_leftover(self, session: SessionRef) -> None:
        """A turn that rows show as running while a workflow only begins: the one before was ended from outside. It is over."""
        async with self._kit.session(session) as tx:
            await end_leftover(tx, activity.info().scheduled_time)


async def _batch(conn: Any, uid: str, newest: Any) -> Batch | None:
    """The open batch of the rows. One whose calls all have results (rows written by another tool) is not pending (R109)."""
    row, calls = await current_batch(conn, uid)
    if row is None:
        return None
    host = [call for call in calls if call["category"] == "host" and call["outcome"] != "retried"]
    batch = Batch(
        message_id=row["message_id"],
        turn=_turn_ref(row),
        step=row["step"],
        calls=tuple(
            OpenCall(
                call_id=call["call_id"],
                tool_name=call["tool_name"],
                arguments_digest=call["arguments_digest"],
                **json.loads(call["options"]),
            )
            for call in host
        ),
        answered=tuple(call["call_id"] for call in host if call["state"] == "recorded"),
        handover=row["handover"],
        profile=row["profile"],
        config=_config(row),
    )
    return batch.model_copy(update={"asked_at": _asked_at(batch, host, newest)}) if batch.open else None


def _asked_at(batch: Batch, calls: list[Any], newest: Any) -> dict[str, str]:
    """When the host was asked for what is pending: as its deadline says, or else when the newest turn showed it."""
    shown = newest["ended_at"] if newest else None
    times = {}
    for call in calls:
        seconds = json.loads(call["options"]).get("deadline_seconds")
        known = call["deadline_at"] - timedelta(seconds=seconds) if call["deadline_at"] and seconds is not None else shown
        if known is not None and any(call["call_id"] == asked.call_id for asked in batch.asked):
            times[call["call_id"]] = known.isoformat()
    return times


def _config(row: Any) -> TurnConfig | None:
    return TurnConfig.model_validate_json(row["config"]) if row["config"] else None


def _turn_ref(row: Any) -> TurnRef:
    return TurnRef(
        turn_id=row["turn_id"],
        number=row["number"],
        attempt=row["attempt"],
        kind=row["kind"],
        message_id=row["message_id"],
        user_message_id=row["user_message_id"],
        accepted_at=row["accepted_at"].isoformat(),
    )


def _last_turn(row: Any) -> LastTurn:
    error = TurnError.model_validate_json(row["error"]) if row["error"] else None
    return LastTurn(turn=_turn_ref(row), next_step=max(1, row["steps"]), error=error, profile=row["profile"], config=_config(row))
