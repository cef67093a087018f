"""Whether a history that can't be read any more is one that nobody is to read: its session was erased, and the history itself is about to go."""

from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter

from activities.db.erasures import is_erased
from activities.db.pool import Database
from activities.deriving.histories import session_uid_of
from workflows.contracts.errors import OutlastError

ERASED = "its session was erased, and its payloads are gone: there is nothing to replay any more"


class Erased:
    """Asks the rows, where there are any."""

    def __init__(self, database: Database | None, converter: DataConverter) -> None:
        self._database = database
        self._converter = converter

    async def has(self, history: WorkflowHistory) -> bool:
        """Whether the run was of a session that was erased. False also where that can't be found out."""
        if self._database is None:
            return False
        try:
            uid = await session_uid_of(history.events, self._converter)
            return uid is not None and await is_erased(self._database, uid)
        except OutlastError:
            return False


__all__ = ["ERASED", "Erased"]
