"""The model step: one model request, the rows it opens with and the rows it closes with."""

from typing import Any, Literal

from temporalio import activity

from workflows.model.attachment import Attachment
from workflows.model.base import Record
from workflows.model.call import CallResult, OpenCall
from workflows.model.session import SessionRef
from workflows.model.turn import TurnConfig, TurnError, TurnRef, Usage


class Birth(Record):
    """The first accepted input makes the session's row."""

    owner: str | None
    profile: str
    subject: str | None = None
    created_at: str


class NewMessage(Record):
    """The user's message as it was accepted. Content is here because it is new; the rest of the conversation is named, not carried."""

    id: str
    parent_id: str | None
    content: str
    digest: str
    host_context: dict[str, Any] | None = None
    attachments: tuple[Attachment, ...] = ()


class Opening(Record):
    """What the opening transaction writes beside the turn and `turn.started`.

    With a `message`, the open host batch and every open call become `superseded` in the same transaction. `retry`: what the
    failed step had streamed is taken back. `steering`: the turn is pending steering's own; it extends the active leaf if that is
    an assistant message without children, else makes one under it.
    """

    revision: int
    birth: Birth | None = None
    message: NewMessage | None = None
    result: CallResult | None = None
    host_context: dict[str, Any] | None = None
    retry: bool = False
    steering: bool = False


class RunStep(Record):
    """One model step of a turn. `revision` is the session's if this step ends the turn. `spent_seconds` of the turn's time are used up."""

    session: SessionRef
    turn: TurnRef
    step: int
    revision: int
    profile: str
    config: TurnConfig | None = None
    opening: Opening | None = None
    spent_seconds: float = 0.0
    cancelled: bool = False


class PromptSource(Record):
    """A part of the prompt behind an answer: where it comes from, under which name, and the SHA-256 (hex) of its text."""

    source: str
    name: str
    sha256: str


class ShownSegment(Record):
    """A segment that readers were shown, at its place among what a step shows (of a lost step: among the message's segments)."""

    place: int
    kind: Literal["thinking", "text", "tool_group"]
    text: str = ""


class RefusedCall(Record):
    """A call of the response that never ran because its arguments did not fit. `problem` is JSON text."""

    call: OpenCall
    outcome: Literal["retried", "failed"]
    status: str | None = None
    problem: str


class StepDone(Record):
    """How a step ended.

    state: `answered` the turn is over; `calls` the `server_calls` are to be run (none: go on with the next step at once);
    `paused` the turn is over and the host is asked; `failed` and `cancelled` the turn is over with `error`; `refused` the rows
    refused the input (`error` says why), nothing was written; `stale` the turn had been ended before, nothing was written.
    `response` is the new pydantic-ai message as JSON text, empty if there is none. `host_calls` are the open host calls of
    the response. `message_id` is the assistant message, given where the rows decided which one it is; `steering` are the records
    that the step consumed, `passed_over` is the profile of pending steering that a turn which `answered` could not take (empty: there is
    none). `at` is the time of the closing transaction (ISO 8601, UTC), `seconds` what the step took.

    What rows hold beside the response, so that they can be derived again: `refused_calls`, the `prompt`'s parts, and where the response
    does not say what was `shown`, all of that. `refused_code` is the refusal's, where the rows refused the input.
    """

    state: Literal["answered", "calls", "paused", "failed", "cancelled", "refused", "stale"]
    response: str = ""
    server_calls: tuple[OpenCall, ...] = ()
    host_calls: tuple[OpenCall, ...] = ()
    handover: Literal["one", "all"] = "one"
    usage: Usage = Usage()
    model: str = ""
    error: TurnError | None = None
    message_id: str = ""
    steering: tuple[str, ...] = ()
    passed_over: str = ""
    refused_calls: tuple[RefusedCall, ...] = ()
    prompt: tuple[PromptSource, ...] = ()
    shown: tuple[ShownSegment, ...] = ()
    at: str = ""
    first_text_at: str = ""
    expires_at: str = ""
    seconds: float = 0.0
    refused_code: str = ""


@activity.defn
async def run_step(step: RunStep) -> StepDone:
    """Runs one model request and commits what came of it. Repeatable: a step that was closed answers what it had answered."""
    raise NotImplementedError
