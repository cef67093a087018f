"""One model step, from its opening to its closing transaction."""

import asyncio
import time
from datetime import timedelta

from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import Model
from pydantic_ai.tools import ToolDefinition
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from activities.budgets import check_budgets
from activities.context import PathKey
from activities.db.session_tx import moment, now_text, sql
from activities.failures import ProviderFailure, classify, reported
from activities.kit import Kit
from activities.limits import model_names, turn_seconds
from activities.live_text import LiveText, Superseded
from activities.llm.models import request_settings
from activities.llm.prompt import PromptPart, instructions, prompt_parts
from activities.llm.stream import ModelStream, PieceKind
from activities.llm.tools import Toolbox
from activities.llm.translate import dump, usage_of
from activities.patience import patiently
from activities.projection.announcing import announce_refused
from activities.projection.closing import NewCall, StepEnd, call_event, close_step
from activities.projection.describing import kept_segments, prompt_record, with_shown
from activities.step_calls import StepCalls
from activities.step_opening import Begun, begin, left_by_another
from profiles import Profile
from workflows.contracts import policies
from workflows.contracts.errors import Refusal, SetupError, TurnFault
from workflows.contracts.steps import RunStep, StepDone
from workflows.model.turn import CANCELLED, TIMED_OUT, TurnError, Usage


class StepRun:
    """Runs a step. `stop` may be called at any moment: what was streamed is kept, and the turn ends as cancelled."""

    def __init__(self, kit: Kit, step: RunStep) -> None:
        self._kit = kit
        self._step = step
        self._stopped = asyncio.Event()
        self._started = time.monotonic()
        self._begun: Begun
        self._live: LiveText
        self._calls: StepCalls
        self._prompt: list[PromptPart] = []
        self._model_name = ""
        self._announced = 0
        self._settled = 0
        if step.cancelled:
            self._stopped.set()

    def stop(self) -> None:
        """Cancels the turn."""
        self._stopped.set()

    async def run(self) -> StepDone:
        """The step's result.

        Raises ApplicationError, with the delay to the next attempt, when the provider failed in a way that may pass.
        """
        try:
            begun = await patiently(lambda: begin(self._kit, self._step))
        except Refusal as refusal:
            return await self._refused(refusal)
        if isinstance(begun, StepDone):
            return begun
        self._begun = begun
        self._step = self._step.model_copy(update={"turn": begun.turn})
        turn = begun.turn
        uid = self._step.session.session_uid
        self._live = LiveText(self._kit.db, uid, turn.turn_id, turn.attempt, begun.run, begun.first_segment, begun.after_seq)
        try:
            return await self._attempt()
        except (TurnFault, SetupError) as fault:
            return await self._fail(classify(fault).error)
        except Superseded:
            return await patiently(lambda: left_by_another(self._kit, self._step))

    @property
    def _seconds(self) -> float:
        """What the step took so far, the attempts before this one that ended in a provider's failure included."""
        return time.monotonic() - self._started + self._begun.seconds

    async def _attempt(self) -> StepDone:
        profile = self._kit.profile(self._step.profile)
        toolbox = Toolbox(profile, self._begun.actions)
        self._calls = StepCalls(self._kit.db, self._step, toolbox)
        if self._stopped.is_set():
            return await self._fail(CANCELLED)
        if self._begun.fault:
            raise TurnFault(self._begun.fault)
        left = await check_budgets(self._kit, self._step, profile, self._begun.used)
        tools = await toolbox.definitions()
        try:
            stream = self._stream(profile, tools, left)
        except TurnFault as fault:
            return await self._fail(await self._judged(fault, profile))
        outcome = await self._watched(stream)
        await patiently(self._live.finish)
        self._settled = stream.settled
        if isinstance(outcome, ModelResponse) and outcome.finish_reason == "length" and stream.most_tokens is not None:
            return await self._fail(OUT_OF_TOKENS, stream.partial)
        if isinstance(outcome, ModelResponse):
            return await self._finish(outcome, profile)
        return await self._fail(await self._judged(outcome, profile), stream.partial)

    def _stream(self, profile: Profile, tools: list[ToolDefinition], most_tokens: int | None) -> ModelStream:
        config = self._step.config
        names = model_names(self._kit.settings, profile, config)
        self._model_name = names[min(self._begun.model_index, len(names) - 1)]
        model: Model = self._kit.models.of(self._model_name)
        self._prompt = prompt_parts(profile)
        return ModelStream(
            model,
            self._begun.messages,
            instructions=instructions(self._prompt),
            tools=tools,
            settings=request_settings(model, config.temperature if config else None, most_tokens),
            requires_end=self._kit.settings.model_requires_end,
            settled=self._begun.path.settled.get(self._model_name, 0),
            instrument=self._kit.models.instrument,
        )

    async def _watched(self, stream: ModelStream) -> ModelResponse | TurnError | Exception:
        """The response, or why there is none: cancelled, out of time, or the provider's failure."""
        limit = turn_seconds(self._kit.settings) - self._step.spent_seconds - self._seconds
        if limit <= 0:
            return TIMED_OUT
        request = asyncio.create_task(stream.run(self))
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            await asyncio.wait((request, stopped), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if request.done():
                return _result_of(request)
            return CANCELLED if self._stopped.is_set() else TIMED_OUT
        finally:
            stopped.cancel()
            request.cancel()
            await asyncio.gather(request, stopped, return_exceptions=True)

    async def _judged(self, outcome: TurnError | Exception, profile: Profile) -> TurnError:
        """The error that the turn ends with. Raises ApplicationError if the step is to be tried again instead."""
        if isinstance(outcome, TurnError):
            return outcome
        failure = reported(outcome)
        failures = self._begun.failures + 1
        more_models = len(model_names(self._kit.settings, profile, self._step.config)) - 1 - self._begun.model_index
        if failure.again and failures < policies.PROVIDER_ATTEMPTS:
            delay = failure.delay(failures, self._kit.settings.model_retry_seconds)
            await self._again(failure, self._begun.model_index, failures, delay)
        if more_models > 0 and failure.error.type not in ("context_overflow", "internal"):
            await self._again(failure, self._begun.model_index + 1, 0, 0.0)
        return failure.error

    async def _again(self, failure: ProviderFailure, model_index: int, failures: int, delay: float) -> None:
        seconds = self._seconds + delay
        if self._step.spent_seconds + seconds >= turn_seconds(self._kit.settings):
            return

        async def note() -> None:
            async with self._kit.db.connection() as conn:
                await self._note(conn, model_index, failures, seconds)

        await patiently(note)
        raise ApplicationError(
            failure.error.message, type=failure.error.type, next_retry_delay=timedelta(seconds=max(delay, 0.05)), category=EXPECTED
        )

    async def _note(self, conn: object, model_index: int, failures: int, seconds: float) -> None:
        turn = self._step.turn
        await sql.note_progress(
            conn,
            session_uid=self._step.session.session_uid,
            turn_id=turn.turn_id,
            attempt=turn.attempt,
            step=self._step.step,
            run=self._begun.run,
            model_index=model_index,
            failures=failures,
            seconds=seconds,
            announced=self._announced,
        )

    # What the model's stream reports while it runs.

    async def piece(self, index: int, kind: PieceKind, text: str) -> None:
        """More text or thinking."""
        await self._live.piece(index, kind, text)

    async def calls(self, parts: list[ToolCallPart]) -> None:
        """Complete calls in the middle of the response: shown before the text that follows them (R77)."""
        added = await patiently(lambda: self._calls.add(parts, self._live.group(), announced=True))
        await patiently(self._live.flush)
        self._announced = len(self._live.segments)
        await patiently(lambda: self._announce_calls(added))

    async def _announce_calls(self, calls: list[NewCall]) -> None:
        step, begun = self._step, self._begun
        async with self._kit.session(step.session, step.turn.turn_id) as tx:
            if tx.turn_run != begun.run:
                raise Superseded
            await self._note(tx.conn, begun.model_index, begun.failures, begun.seconds)
            for call in calls:
                await tx.announce("tool.call", step.turn.turn_id, moment(now_text()), call_event(call))

    async def _finish(self, response: ModelResponse, profile: Profile) -> StepDone:
        """The response's remaining calls, and what the turn does next."""
        parts = [part for part in response.parts if isinstance(part, ToolCallPart)]
        rest = parts[len(self._calls.new) :]
        if rest:
            await patiently(lambda: self._calls.add(rest, self._live.group(), announced=False))
        response = self._calls.renamed(response)
        usage = usage_of(response)
        if not self._calls.new and not any(segment.kind == "text" and segment.text.strip() for segment in self._live.segments):
            return await self._close("failed", None, usage, EMPTY)
        server, host = self._calls.open("server"), self._calls.open("host")
        state = "calls" if server or (self._calls.new and not host) else "paused" if host else "answered"
        return await self._close(state, response, usage, None, self._handover(profile))

    def _handover(self, profile: Profile) -> str:
        return (self._step.config and self._step.config.handover) or profile.handover

    async def _fail(self, error: TurnError, partial: ModelResponse | None = None) -> StepDone:
        usage = usage_of(partial).model_copy(update={"tool_calls": 0}) if partial else Usage()
        return await self._close("cancelled" if error.type == "cancelled" else "failed", partial, usage, error)

    async def _close(
        self, state: str, response: ModelResponse | None, usage: Usage, error: TurnError | None, handover: str = "one"
    ) -> StepDone:
        failed = error is not None
        done = StepDone(
            state=state,
            response=dump(response) if response else "",
            server_calls=() if failed else self._calls.open("server"),
            host_calls=() if failed else self._calls.open("host"),
            refused_calls=() if failed else self._calls.refused(),
            prompt=tuple(part.origin for part in self._prompt),
            handover=handover,
            message_id=self._step.turn.message_id if self._step.turn.kind == "steering" else "",
            steering=() if failed else self._begun.steering,
            usage=usage,
            model=self._model_name,
            error=error,
            at=now_text(),
            first_text_at=self._live.first_text_at,
            seconds=self._seconds,
        )
        segments = kept_segments(self._live.segments, without_calls=failed)
        done = with_shown(done, response, segments)
        end = StepEnd(
            done=done,
            first_segment=self._begun.first_segment,
            next_model_message=self._begun.next_model_message,
            segments=segments,
            run=self._begun.run,
            unsent=self._live.unsent(),
            calls=[] if failed else self._calls.new,
            request=self._begun.results if failed else self._begun.request,
            response=done.response or None,
            prompt=prompt_record(done.prompt),
        )
        return await patiently(lambda: self._commit(end))

    async def _commit(self, end: StepEnd) -> StepDone:
        step, turn = self._step, self._step.turn
        new_prompts = [part for part in self._prompt if part.sha256 not in self._kit.kept_prompts]
        async with self._kit.session(step.session, turn.turn_id) as tx:
            for part in new_prompts:
                await sql.keep_prompt(tx.conn, sha256=part.sha256, text=part.text, at=moment(end.done.at))
            done = await close_step(tx, step, end)
        self._kit.kept_prompts.update(part.sha256 for part in new_prompts)
        kept = [body for body in (end.request, end.response) if body is not None]
        if done.at == end.done.at and done.error is None:
            key = PathKey(tx.uid, turn.message_id, end.next_model_message + len(kept), turn.turn_id, turn.attempt)
            self._kit.paths.extend(key, self._begun.path.settled_for(self._model_name, self._settled), kept)
        return done

    async def _refused(self, refusal: Refusal) -> StepDone:
        """The rows knew better: nothing was written but the word about it."""
        await announce_refused(self._kit.db, self._step.session, self._step.turn, refusal)
        error = TurnError.of("session_error", refusal.message)
        return StepDone(state="refused", error=error, at=now_text(), refused_code=refusal.code)


EXPECTED = ApplicationErrorCategory.BENIGN  # the log has said what failed, and it is asked for again
EMPTY = TurnError.of("empty_response", "the model's answer was empty")
OUT_OF_TOKENS = TurnError.of("usage_limit", "the turn's budget of output tokens is used up")


def _result_of(request: "asyncio.Task[ModelResponse]") -> ModelResponse | Exception:
    error = request.exception()
    if error is None:
        return request.result()
    if isinstance(error, Superseded) or not isinstance(error, Exception):
        raise error
    return error
