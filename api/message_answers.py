"""Answers that show messages: the display form of the tree."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, JsonValue

from api.answers import Answer


class TextSegment(Answer):
    """Text or thinking, as it was streamed."""

    kind: Literal["text", "thinking"]
    text: str


class ToolCall(Answer):
    """A tool call. Absent `outcome`: success; absent `status`: completed. An open call has neither these nor `output`."""

    id: str
    name: str
    input: JsonValue
    output: JsonValue = None
    outcome: str | None = None
    status: str | None = None


class ToolGroup(Answer):
    """The tool calls that one response made side by side."""

    kind: Literal["tool_group"]
    tools: list[ToolCall]


class Component(Answer):
    """A part of a host card."""

    kind: Literal["component"]
    type: str
    data: JsonValue = None


Segment = Annotated[TextSegment | ToolGroup | Component, Field(discriminator="kind")]


class ShownAttachment(Answer):
    """A file of a message, without its bytes. `size` (bytes) and `digest` (SHA-256, hex) are null for a file that is named by `url`."""

    name: str
    media_type: str
    size: int | None
    digest: str | None
    url: str | None = None


class Steering(Answer):
    """What became of steering. `message_id` is the assistant's message that took it."""

    status: Literal["pending", "delivered"]
    delivered_at: datetime | None
    message_id: str | None


class MessageRow(Answer):
    """A message as it is shown. `steering` is set for steering, which has no parent."""

    id: str
    parent_id: str | None
    role: Literal["user", "assistant", "host"]
    content: str
    segments: list[Segment]
    created_at: datetime
    updated_at: datetime
    turn_id: str | None
    profile: str | None
    model: str | None
    usage: dict[str, Any] | None
    error: dict[str, Any] | None
    attachments: list[ShownAttachment]
    steering: Steering | None


class MessageList(Answer):
    """The messages of one path, root first."""

    messages: list[MessageRow]


class TreeMessage(Answer):
    """A message's place in the tree."""

    id: str
    parent_id: str | None
    role: Literal["user", "assistant", "host"]
    content: str
    created_at: datetime


class Tree(Answer):
    """Every message of a session, parents before children."""

    messages: list[TreeMessage]


class PromptPart(Answer):
    """A stable part of a prompt. `sha256` is of its text."""

    source: str
    name: str
    version: str
    sha256: str
    text: str | None


class PromptRecord(Answer):
    """What the model was told before the conversation; empty for messages that no model wrote."""

    message_id: str
    prompt: list[PromptPart]


class Tombstone(Answer):
    """A row that is no more. This release never takes a single message away; readers are to expect it nevertheless."""

    id: str
    deleted: Literal[True]


class ChangeList(Answer):
    """Rows in the order of their newest changes. `next_cursor` is where to go on, also when nothing is there yet."""

    messages: list[MessageRow | Tombstone]
    next_cursor: str
    active_leaf_id: str | None
