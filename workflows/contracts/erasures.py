"""The end of a session: its rows, the runs of its workflow, its payloads, and the look whether anything is left."""

from pydantic import Field
from temporalio import activity

from workflows.model.base import Record
from workflows.model.session import SessionRef


class EraseRows(Record):
    """Everything that Postgres holds of a session. Asked for `by` a principal; by nobody: it expired."""

    session: SessionRef
    by: str = ""
    at: str = ""


class EraseHistories(Record):
    """A session that has ended, at `before` (ISO 8601). Its workflow id may be in use by another session already, so its runs are told by
    their ids: `run_ids` are those at the end of its chains.
    """

    workflow_id: str
    session_uid: str
    run_ids: tuple[str, ...]
    before: str


class FoundRuns(Record):
    """Runs that Temporal still has."""

    run_ids: tuple[str, ...] = ()


class DeleteRuns(Record):
    """Closed runs of a workflow."""

    workflow_id: str
    run_ids: tuple[str, ...]


class ErasePayloads(Record):
    """External payloads of a session: those that these runs refer to, which are about to go; with none, what is left over."""

    erase: EraseHistories
    run_ids: tuple[str, ...] = ()


class VerifyErasure(Record):
    """An erasure that seems to be done, and how many runs went."""

    erase: EraseHistories
    workflow_runs: int


class Erased(Record):
    """What an erasure removed. `verified`: nothing is left."""

    rows: dict[str, int] = Field(default_factory=dict)
    workflow_runs: int = 0
    payloads: int = 0
    verified: bool = False


@activity.defn
async def erase_rows(erase: EraseRows) -> Erased:
    """Removes a session's rows and counts them. Twice is once, with the first one's counts."""
    raise NotImplementedError


@activity.defn
async def find_runs(erase: EraseHistories) -> FoundRuns:
    """The session's runs that Temporal has. Fails, to be repeated, while one of them is open."""
    raise NotImplementedError


@activity.defn
async def delete_runs(delete: DeleteRuns) -> None:
    """Removes runs. Fails, to be repeated, until Temporal has none of them: it deletes in the background."""
    raise NotImplementedError


@activity.defn
async def erase_payloads(erase: ErasePayloads) -> None:
    """Removes payloads from external storage and counts them. Fails, to be repeated, while some could be on their way to another session."""
    raise NotImplementedError


@activity.defn
async def verify_erasure(verify: VerifyErasure) -> Erased:
    """Looks again at everything. What is left is not removed here; if nothing is, the receipt says so from now on."""
    raise NotImplementedError
