"""Bodies of writes that begin no turn: cards, changes of a session's fields, cancel, repair, retry."""

from typing import Annotated, Any, Literal, Self

from fastapi import Depends, Query
from pydantic import ConfigDict, Field, JsonValue, TypeAdapter, WithJsonSchema, field_validator, model_validator

from api.schemas import Body, Id, Name, Party, Revision
from workflows.contracts.json_text import digest_of

MAX_SEGMENTS = 64 * 1024
"""Bytes of JSON that the segments of a card take together."""


class CancelBody(Body):
    """Which turn to cancel; absent: the live one."""

    turn_id: Id | None = None


class ChangeBody(Body):
    """What every other write may carry."""

    expected_revision: Revision | None = None


async def expected(expected_revision: Annotated[int | None, Query(ge=0)] = None) -> ChangeBody:
    """The same for a write without a body: a DELETE names the revision in its query."""
    return NOTHING_SAID if expected_revision is None else ChangeBody(expected_revision=expected_revision)


ExpectedDep = Annotated[ChangeBody, Depends(expected)]


class ResumeBody(ChangeBody):
    """A host's result, for the call that a pause token names. `tool_result` is any JSON value, null too."""

    tool_result: Any  # as in ChatBody
    tool_outcome: Literal["success", "failed", "denied"] = "success"


class CardSegment(Body):
    """A component that the host shows. `data` is any JSON value."""

    kind: Literal["component"]
    type: Name
    data: JsonValue = None


class CardBody(ChangeBody):
    """A host card. The model reads `content`, never the components."""

    segments: list[CardSegment] = Field(min_length=1, max_length=16)
    content: str = ""
    id: Id | None = None
    profile: Name | None = None
    subject: Name | None = None

    @field_validator("segments")
    @classmethod
    def _fits(cls, value: list[CardSegment]) -> list[CardSegment]:
        size = sum(len(segment.model_dump_json(exclude_unset=True).encode()) for segment in value)
        if size > MAX_SEGMENTS:
            raise ValueError(f"take {size} bytes of JSON, at most {MAX_SEGMENTS} are allowed")
        return value

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of what the card says: what tells a repeat from another card under the same id."""
        return digest_of(self.model_dump(mode="json", include={"segments", "content", "profile", "subject"}, exclude_defaults=True))


class AmendBody(ChangeBody):
    """New values; what is absent stays. `owner_id` null: nobody's but the admins'. `title` null: none."""

    model_config = ConfigDict(json_schema_extra={"anyOf": [{"required": [name]} for name in ("owner_id", "title", "active_leaf_id")]})

    owner_id: Party | None = None
    title: Name | None = None
    active_leaf_id: Annotated[Id | None, WithJsonSchema(TypeAdapter(Id).json_schema())] = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.named:
            raise ValueError("name at least one of `owner_id`, `title`, `active_leaf_id`")
        if "active_leaf_id" in self.named and self.active_leaf_id is None:
            raise ValueError("`active_leaf_id` must name a message")
        return self

    @property
    def named(self) -> tuple[Literal["title", "owner_id", "active_leaf_id"], ...]:
        """The fields that are to change."""
        fields: tuple[Literal["title", "owner_id", "active_leaf_id"], ...] = ("title", "owner_id", "active_leaf_id")
        return tuple(field for field in fields if field in self.model_fields_set)


NO_TURN_NAMED = CancelBody()
NOTHING_SAID = ChangeBody()
"""What an absent body means."""
