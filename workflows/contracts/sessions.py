"""Writes on a session that are no turns: cards, changes of its fields, reminders, and its end."""

from typing import Any, Literal

from pydantic import Field
from temporalio import activity

from workflows.contracts.steps import Birth
from workflows.model.base import Record
from workflows.model.session import SessionRef


class PostCard(Record):
    """A host card under the active leaf, which it becomes."""

    session: SessionRef
    id: str
    parent_id: str | None
    segments: list[dict[str, Any]] = Field(default_factory=list)
    content: str = ""
    digest: str = ""
    profile: str
    revision: int
    at: str
    birth: Birth | None = None


class AmendSession(Record):
    """New values of the named fields, asked for `by` a principal."""

    session: SessionRef
    fields: tuple[Literal["title", "owner_id", "active_leaf_id"], ...]
    title: str | None = None
    owner_id: str | None = None
    active_leaf_id: str | None = None
    revision: int
    at: str
    by: str = ""


class Written(Record):
    """A write that was made, or why it was not: `refused` is a refusal's code and `reason` its words. `superseded` calls were open.

    `known`: the rows had what was asked for long before, and nothing was changed.
    """

    expires_at: str = ""
    refused: str = ""
    reason: str = ""
    superseded: tuple[str, ...] = ()
    known: bool = False


class Remind(Record):
    """A host action that has waited for as long as its tool says."""

    session: SessionRef
    call_id: str
    at: str


class EraseRows(Record):
    """Everything that Postgres holds of a session. Asked for `by` a principal; by nobody: it expired."""

    session: SessionRef
    by: str = ""
    at: str = ""


class EraseHistories(Record):
    """The runs of a session's workflow that there were when it ended, by run id: its workflow id may be in use again.

    Payloads of the workflow id that were stored `before` (ISO 8601) were this session's. `rows` were removed already.
    """

    workflow_id: str
    session_uid: str
    run_ids: tuple[str, ...]
    before: str
    rows: dict[str, int] = Field(default_factory=dict)


class Erased(Record):
    """What an erasure removed."""

    rows: dict[str, int] = Field(default_factory=dict)
    workflow_runs: int = 0
    payloads: int = 0


@activity.defn
async def post_card(card: PostCard) -> Written:
    """Writes a card's row."""
    raise NotImplementedError


@activity.defn
async def amend_session(change: AmendSession) -> Written:
    """Writes new values of a session's fields."""
    raise NotImplementedError


@activity.defn
async def remind(reminder: Remind) -> None:
    """Announces that the host is still waited for."""
    raise NotImplementedError


@activity.defn
async def erase_rows(erase: EraseRows) -> Erased:
    """Removes a session's rows. Twice is once."""
    raise NotImplementedError


@activity.defn
async def erase_histories(erase: EraseHistories) -> Erased:
    """Removes closed runs and their payloads, and looks again. Fails, to be repeated, while something is still there."""
    raise NotImplementedError
