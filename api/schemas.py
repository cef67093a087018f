"""Request bodies. Unknown fields are refused, unlike in Temporal payloads (workflows/contracts), which tolerate them."""

from typing import Annotated, Any, Literal, Self

from fastapi import Path
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    StringConstraints,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from api.times import IsoTime
from profiles.schemas import schema_problem
from workflows.contracts.horizon import LONGEST_SECONDS
from workflows.contracts.json_text import digest_of, json_text
from workflows.contracts.naming import party_problem
from workflows.rules.attachments import MOST_FILES, MOST_NAME

MAX_CONTENT = 1024 * 1024
"""Bytes of a message's text in UTF-8."""

MAX_VIEW = 32_000
"""Characters of JSON that `view.data`, `view.state` and `extensions` of a host context take together."""

MAX_CONTEXT = 1_000_000
"""Characters of JSON that `navigation`, `background` and the actions' parameters take together: the model reads most of it with each message."""

_MEANING = {
    "content",
    "parent_id",
    "profile",
    "subject",
    "attachments",
    "host_context",
    "config",
    "message_type",
    "when_busy",
}
_ONLY_MESSAGE = ("content", "id", "parent_id", "attachments", "config", "message_type", "when_busy")
_ONLY_CONTINUATION = ("tool_result", "tool_outcome")
_NOT_STEERING = ("parent_id", "attachments", "config", "host_context", "when_busy")


def _no_dots(value: str) -> str:
    if value in (".", ".."):
        raise ValueError("`.` and `..` are not ids")
    return value


def _is_party(value: str) -> str:
    if (problem := party_problem(value)) is not None:
        raise ValueError(problem)
    return value


Id = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9._:-]{1,64}$"),
    AfterValidator(_no_dots),
    WithJsonSchema(
        {"type": "string", "pattern": r"^(?!\.{1,2}$)[A-Za-z0-9._:-]{1,64}$", "description": "1 to 64 of A-Za-z0-9._:-, not . or .."}
    ),
]
"""An id of a session, message or turn (R66)."""

IdPath = Annotated[Id, Path()]


def _whole(value: Any) -> Any:
    """JSON knows no integers: 3.0 is 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Count = Annotated[int, Field(ge=1, strict=True), BeforeValidator(_whole)]
Revision = Annotated[int, Field(ge=0, strict=True), BeforeValidator(_whole)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=200)]
_WRITTEN = r"[^\s\x00-\x1f\x7f-\x9f]"
Party = Annotated[
    str,
    AfterValidator(_is_party),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^{_WRITTEN}([^\x00-\x1f\x7f-\x9f]*{_WRITTEN})?$",
            "description": "A principal: at most 255 bytes in UTF-8, no control characters, no space at its ends",
        }
    ),
]
CallId = Annotated[str, StringConstraints(min_length=1, max_length=256)]
ToolName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class Body(BaseModel):
    """A part of a request body."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class Host(Body):
    """Which application shows the conversation."""

    name: str | None = None
    kind: str | None = None
    version: str | None = None


class View(Body):
    """What the person is looking at."""

    name: str | None = None
    description: str | None = None
    data: JsonValue = None
    state: JsonValue = None


class DeclaredAction(Body):
    """A host tool that is declared for this request. `parameters` is a JSON schema of type `object`."""

    name: ToolName
    description: str = ""
    parameters: dict[str, JsonValue] = Field({"type": "object", "properties": {}})
    deadline_seconds: float | None = Field(None, gt=0, le=LONGEST_SECONDS)
    remind_seconds: float | None = Field(None, gt=0, le=LONGEST_SECONDS)

    @field_validator("parameters")
    @classmethod
    def _is_schema(cls, value: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if (problem := schema_problem(value)) is not None:
            raise ValueError(problem)
        return value


class AttachmentBody(Body):
    """A file: `url` is a data URI (or, where that is allowed, an http or https URL), or `data` is its bytes in base64."""

    name: Annotated[str, StringConstraints(max_length=MOST_NAME)] = ""
    media_type: Annotated[str, StringConstraints(min_length=1, max_length=200)] | None = None
    url: str | None = None
    data: str | None = None

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.url is None) == (self.data is None):
            raise ValueError("has either `url` (a data URI) or `data` (base64)")
        return self


class HostContext(Body):
    """What the host shows and can do. The last one is reused when a later message carries none.

    An attachment that carries a file (`data`, or a data URI as `url`) is one of the message's; any other is a word about one.
    """

    version: Literal[1] = 1
    host: Host | None = None
    view: View | None = None
    navigation: list[JsonValue] = []
    actions: list[DeclaredAction] = Field(default=[], max_length=32)
    attachments: list[JsonValue] = Field(default=[], max_length=MOST_FILES)
    background: dict[str, JsonValue] = {}
    captured_at: IsoTime | None = None
    extensions: dict[str, JsonValue] = {}

    @model_validator(mode="after")
    def _fits(self) -> Self:
        names = [action.name for action in self.actions]
        if len(names) != len(set(names)):
            raise ValueError("two actions have the same name")
        view = self.view or View()
        size = sum(len(json_text(part)) for part in (view.data, view.state, self.extensions) if part)
        if size > MAX_VIEW:
            raise ValueError(f"view.data, view.state and extensions take {size} characters of JSON, at most {MAX_VIEW} are allowed")
        rest = sum(len(json_text(part)) for part in (self.navigation, self.background, [action.parameters for action in self.actions]))
        if rest > MAX_CONTEXT:
            raise ValueError(f"navigation, background and actions take {rest} characters of JSON, at most {MAX_CONTEXT} are allowed")
        return self


class Budget(Body):
    """Limits of one turn."""

    max_input_tokens: Count | None = None
    max_output_tokens: Count | None = None
    max_total_tokens: Count | None = None
    max_requests: Count | None = None
    max_cost_usd: float | None = Field(None, gt=0)


class Config(Body):
    """What a message asks of its turn. Absent: as the profile and the settings say."""

    model: Name | None = None
    max_steps: Count | None = Field(None, le=1000)
    temperature: float | None = Field(None, ge=0, le=2)
    handover: Literal["one", "all"] | None = None
    budget: Budget | None = None


class ChatBody(Body):
    """A message, steering, or (with `tool_call_id`) a host's result that continues a turn."""

    session_id: Id | None = None
    id: Id | None = None
    turn_id: Id | None = None
    content: str | None = None
    parent_id: Id | None = None
    profile: Name | None = None
    subject: Name | None = None
    attachments: list[AttachmentBody] = Field(default=[], max_length=MOST_FILES)
    host_context: HostContext | None = None
    config: Config | None = None
    message_type: Literal["standard", "steering"] = "standard"
    when_busy: Literal["interrupt", "enqueue", "reject", "replace"] = "interrupt"
    expected_revision: Revision | None = None
    tool_call_id: CallId | None = None
    tool_result: Any = None  # JSON it is already, and megabytes are not looked through once more
    tool_outcome: Literal["success", "failed", "denied"] = "success"

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if self.is_continuation:
            self._check_continuation()
        elif self.message_type == "steering" and not self.content:
            raise ValueError("steering needs `content` that is not empty")
        elif not self.content and not self.attachments:
            raise ValueError("a message needs `content` that is not empty, a continuation needs `tool_call_id`")
        else:
            self._refuse(_ONLY_CONTINUATION, "`{}` belongs to a continuation, which needs `tool_call_id`")
            if self.message_type == "steering":
                self._refuse(_NOT_STEERING, "`{}` does not belong to steering, which joins a turn as it is")
        return self

    @property
    def is_continuation(self) -> bool:
        """Whether this is a host's result rather than a message."""
        return self.tool_call_id is not None

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the fields that carry meaning, in canonical JSON: what tells a repeat from another body under the same id."""
        return digest_of(self.model_dump(mode="json", include=_MEANING, exclude_defaults=True))

    def _check_continuation(self) -> None:
        if self.content is not None:
            raise ValueError("a request carries either `content` or `tool_call_id`, not both")
        self._refuse(_ONLY_MESSAGE, "`{}` belongs to a message, not to a continuation")
        if self.session_id is None:
            raise ValueError("a continuation needs `session_id`")
        if "tool_result" not in self.model_fields_set:
            raise ValueError("a continuation needs `tool_result` (any JSON value, null too)")

    def _refuse(self, fields: tuple[str, ...], sentence: str) -> None:
        for field in fields:
            if field in self.model_fields_set and getattr(self, field) is not None:
                raise ValueError(sentence.format(field))
