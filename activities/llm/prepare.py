"""From a stored conversation to what a model is sent, without looking at all of it each time.

The library repairs and prepares a whole conversation before each request, which at a thousand turns takes longer than everything else
of a turn. What it does to a message depends on the message, its neighbours, and on marks that the first message that needs one gets.
So where it changed nothing up to a response that calls nothing, it changes nothing there later: no result or mark of what follows
reaches back over such a response. Thinking of another provider is left out. From the first message on that it does change, everything is looked at each time.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace

from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ModelResponsePart,
    ThinkingPart,
    ToolReturnPart,
    repair_messages,
)
from pydantic_ai.models import Model, ModelRequestParameters

_log = logging.getLogger(__name__)
_SYNTHESIZED = "pydantic_ai_synthesized_tool_return"


def prepared(
    model: Model, history: Sequence[ModelMessage], parameters: ModelRequestParameters, settled: int = 0
) -> tuple[list[ModelMessage], int]:
    """What the model is sent, and how many messages from the beginning are settled: any longer history that begins with them keeps them.

    `settled` is what an earlier call answered for the same model and the beginning of this history; 0 looks at everything.
    """
    rest = history[settled:]
    ready = model.prepare_messages(_repaired([own for message in rest if (own := _own(model, message)) is not None]), parameters)
    unchanged = len(ready) == len(rest) and all(new is old for new, old in zip(ready, rest, strict=True))
    return [*history[:settled], *ready], settled + (_last_end(rest) if unchanged else 0)


def _own(model: Model, message: ModelMessage) -> ModelMessage | None:
    """A message without thinking of another provider: its signatures mean nothing here, and its text would be taken for something said.

    None if nothing else was in it.
    """
    if not isinstance(message, ModelResponse) or not any(_is_foreign(model, message, part) for part in message.parts):
        return message
    parts = [part for part in message.parts if not _is_foreign(model, message, part)]
    return replace(message, parts=parts) if parts else None


def _is_foreign(model: Model, message: ModelResponse, part: ModelResponsePart) -> bool:
    origin = (part.provider_name or message.provider_name) if isinstance(part, ThinkingPart) else None
    return origin is not None and origin != model.system


def _last_end(messages: Sequence[ModelMessage]) -> int:
    """The place of the last response that calls nothing. It stays among what is looked at, for what may be joined to it."""
    for place in range(len(messages) - 1, 0, -1):
        message = messages[place]
        if isinstance(message, ModelResponse) and not message.tool_calls:
            return place
    return 0


def _repaired(history: Sequence[ModelMessage]) -> list[ModelMessage]:
    messages = repair_messages(history)
    for message in messages:
        for part in message.parts if isinstance(message, ModelRequest) else ():
            if isinstance(part, ToolReturnPart) and (part.metadata or {}).get(_SYNTHESIZED):
                _log.error("the stored conversation has no result for call %s of %s", part.tool_call_id, part.tool_name)
    return messages
