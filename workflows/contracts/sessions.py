"""Writes on a session that are no turns: cards, changes of its fields, reminders."""

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
