"""What of a step is in its response already, and what its result has to say beside it, so that rows can be derived from histories again."""

import hashlib
from collections.abc import Sequence
from typing import Any

from pydantic_ai.messages import ModelResponse

from activities.live_text import Segment
from activities.llm.translate import display
from workflows.contracts.steps import PromptSource, ShownSegment, StepDone

Segments = Sequence[tuple[int, str, str]]
"""(place, kind, text) of what a step shows."""


def digest_of(arguments: str) -> str:
    """What binds an answer to a call's arguments: SHA-256 of their text, hex."""
    return hashlib.sha256(arguments.encode()).hexdigest()


def prompt_record(parts: Sequence[PromptSource]) -> list[dict[str, str]]:
    """What is kept with a message of the prompt behind it. A part's version is a short name of its very text."""
    return [{"source": part.source, "name": part.name, "version": part.sha256[:12], "sha256": part.sha256} for part in parts]


def shown_by(response: ModelResponse | None) -> list[tuple[int, str, str]]:
    """The segments that a whole response is shown as."""
    return [(place, segment.kind, segment.text) for place, segment in enumerate(display(response))] if response else []


def kept_segments(live: Sequence[Segment], *, without_calls: bool) -> list[tuple[int, str, str]]:
    """What stays of what a step streamed; the groups of calls that come to nothing go."""
    return [(place, one.kind, one.text) for place, one in enumerate(live) if not (without_calls and one.kind == "tool_group")]


def with_shown(done: StepDone, response: ModelResponse | None, segments: Segments) -> StepDone:
    """The step's result, with what was shown where its response does not say so: it was cut, or changed its mind."""
    if list(segments) == shown_by(response):
        return done
    return done.model_copy(update={"shown": as_shown(segments)})


def as_shown(segments: Segments) -> tuple[ShownSegment, ...]:
    """Segments as a result carries them."""
    fields: list[dict[str, Any]] = [{"place": place, "kind": kind, "text": text} for place, kind, text in segments]
    return tuple(ShownSegment.model_validate(one) for one in fields)


__all__ = ["Segments", "as_shown", "digest_of", "kept_segments", "prompt_record", "shown_by", "with_shown"]
