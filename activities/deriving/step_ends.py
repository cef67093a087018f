"""What a step left, from its result: the response says most of it."""

from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ThinkingPart, ToolCallPart

from activities.db.session_tx import LivePiece
from activities.llm.text import shown
from activities.llm.tools import stored_arguments
from activities.llm.translate import dump, load
from activities.projection.calls import Verdict
from activities.projection.closing import NewCall, StepEnd
from activities.projection.describing import prompt_record, shown_by
from workflows.contracts.steps import StepDone


def step_end(done: StepDone, request: ModelRequest | None, first_segment: int, next_model_message: int, run: int) -> StepEnd:
    """The end of a step as its closing transaction stored it. `request` is what the model was given anew."""
    response = _response(done.response)
    segments: list[tuple[int, str, str]] = [(one.place, one.kind, one.text) for one in done.shown] or shown_by(response)
    groups = [place for place, kind, _ in segments if kind == "tool_group"]
    return StepEnd(
        done=done,
        run=run,
        first_segment=first_segment,
        next_model_message=next_model_message,
        segments=segments,
        calls=[] if done.error or response is None else _calls(done, response, groups),
        request=dump(request) if request else None,
        response=done.response or None,
        prompt=prompt_record(done.prompt),
    )


def pieces_of(response: str, first_segment: int) -> list[LivePiece]:
    """What a lost step had shown, if it was one text: that is the whole of its partial answer."""
    message = _response(response)
    texts = [part.content for part in message.parts if isinstance(part, TextPart)] if message else []
    return [LivePiece(first_segment, "text", 0, shown("".join(texts)))] if texts else []


def _response(text: str) -> ModelResponse | None:
    if not text:
        return None
    message = load([text])[0]
    assert isinstance(message, ModelResponse), "a step answers with a response"
    return message


def _calls(done: StepDone, response: ModelResponse, groups: list[int]) -> list[NewCall]:
    open_calls = {call.call_id: call for call in (*done.server_calls, *done.host_calls)}
    refused = {one.call.call_id: one for one in done.refused_calls}
    found: list[NewCall] = []
    group, before = -1, False
    for part in response.parts:
        if isinstance(part, ToolCallPart):
            group += 0 if before else 1
            said = refused.get(part.tool_call_id)
            call = said.call if said else open_calls[part.tool_call_id]
            verdict = Verdict(said.outcome, said.status, said.problem) if said else None
            found.append(NewCall(call, stored_arguments(part), groups[group], len(found), verdict))
            before = True
        elif isinstance(part, TextPart | ThinkingPart) and part.content:
            before = False
    return found


__all__ = ["pieces_of", "step_end"]
