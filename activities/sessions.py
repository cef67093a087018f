"""Writes on a session that are no turns, as activities."""

from temporalio import activity

from activities.beating import beating
from activities.db.session_tx import SessionGone, moment
from activities.kit import Kit
from activities.patience import patiently
from activities.projection.announcing import announce_once
from activities.projection.between import amend
from activities.projection.cards import post
from activities.projection.pending import named_first, pending_action, pending_calls
from activities.running import guarded
from workflows.contracts.errors import Refusal
from workflows.contracts.sessions import AmendSession, PostCard, Remind, Written


class Sessions:
    """Cards, changes of a session's fields, reminders."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    @activity.defn
    async def post_card(self, card: PostCard) -> Written:
        """Writes a card's row (R169)."""
        async with beating():
            return await guarded(patiently(lambda: self._post_card(card)))

    async def _post_card(self, card: PostCard) -> Written:
        try:
            async with self._kit.session(card.session, birth=card.birth) as tx:
                posted = await post(tx, card)
                return Written(expires_at=tx.slide(moment(card.at)), known=not posted)
        except Refusal as refusal:
            return Written(refused=refusal.code, reason=refusal.message)

    @activity.defn
    async def amend_session(self, change: AmendSession) -> Written:
        """Writes new values of a session's fields."""
        async with beating():
            return await guarded(patiently(lambda: self._amend_session(change)))

    async def _amend_session(self, change: AmendSession) -> Written:
        try:
            async with self._kit.session(change.session) as tx:
                return Written(superseded=tuple(await amend(tx, change)))
        except Refusal as refusal:
            return Written(refused=refusal.code, reason=refusal.message)
        except SessionGone:
            return Written(refused="not_found", reason="there is no such session")

    @activity.defn
    async def remind(self, reminder: Remind) -> None:
        """Announces that the host is still waited for."""
        async with beating():
            await guarded(patiently(lambda: self._remind(reminder)))

    async def _remind(self, reminder: Remind) -> None:
        try:
            async with self._kit.session(reminder.session) as tx:
                batch, waiting = await pending_calls(tx)
                if batch and any(row["call_id"] == reminder.call_id for row in waiting):
                    shown = {"pending_action": pending_action(batch, named_first(waiting, reminder.call_id))}
                    await announce_once(tx, "host_action.reminder", moment(reminder.at), shown)
        except SessionGone:
            activity.logger.info("no reminder: the session is gone")
