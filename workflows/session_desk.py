"""Where inputs arrive: nothing but an answer or a refusal leaves a handler, and the same key twice is one input."""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from pydantic import ValidationError
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from workflows.contracts import policies
from workflows.contracts.carried import KeyedAnswer, QueuedClose, QueuedRefusal, WaitingResult
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import ContinuationInput, Input, RecordedRefusal
from workflows.model.base import Record
from workflows.rules import admission
from workflows.rules.alarms import is_over
from workflows.rules.state import body_digest, forget, remember
from workflows.session_jobs import SessionJobs

Asked = TypeVar("Asked", bound=Input)
Answer = TypeVar("Answer", bound=Record)


class SessionDesk:
    """Waits until the session is loaded, then lets an input be judged. `refused` says that some input was."""

    def __init__(self, jobs: SessionJobs, loaded: bool) -> None:
        self._jobs = jobs
        self.loaded = loaded
        self.unloadable = False
        self.refused = False

    def check(self, check: Callable[[Asked], None], asked: Asked) -> None:
        """Refuses before history. A session that is not born or not loaded yet has no state that could decide; the handler will."""
        if self._jobs.closing:
            raise admission.CLOSED.as_failure()
        if self._jobs.rolling:
            raise admission.ROLLING.as_failure()
        if not (self.loaded and self._jobs.state.head.born) or self._overdue() or (asked.key and asked.key in self._jobs.state.keys):
            return
        try:
            admission.check_caller(asked)
            check(asked)
        except Refusal as refusal:
            raise refusal.as_failure() from None

    async def judge(self, judge: Callable[[Asked], Awaitable[Answer]], asked: Asked) -> Answer:
        """The answer to an update. An unexpected exception would be retried for ever, so it becomes a failure of that input (L12)."""
        self._jobs.updates += 1
        try:
            await self._ready()
            await self._known_end(asked)
            if self._ends():
                raise admission.CLOSED
            _check_caller(asked)
            return await (self._keyed(asked.key, judge, asked) if asked.key else judge(asked))
        except Refusal as refusal:
            self.refused = True
            raise refusal.as_failure() from None
        except ApplicationError:
            raise
        except Exception as error:
            self.refused = True
            if self._jobs.closing:
                raise admission.CLOSED.as_failure() from error
            workflow.logger.exception("an input failed unexpectedly")
            raise ApplicationError(f"{type(error).__name__} while the input was judged", type="Internal", non_retryable=True) from error

    def _overdue(self) -> bool:
        return not self._jobs.busy and is_over(self._jobs.state.head, workflow.now())

    def _ends(self) -> bool:
        """True if the session is being removed. An input that comes when its time is over finds it so, also before its timer (R177)."""
        if self._overdue() and not self._jobs.closing:
            self._jobs.enqueue(QueuedClose())
        return self._jobs.closing

    async def _known_end(self, asked: Input) -> None:
        """Where sessions expire and the rows show none, the turn that seems to live may have been the last one: its end is awaited a moment."""
        jobs = self._jobs
        if jobs.state.head.may_expire and jobs.live_turn and asked.rows is not None and asked.rows.session_uid is None:
            with contextlib.suppress(TimeoutError):
                await workflow.wait_condition(lambda: jobs.rolling or not jobs.busy, timeout=policies.LATE_INPUT_WAIT)

    async def _ready(self) -> None:
        await workflow.wait_condition(lambda: self.loaded or self.unloadable)
        if self.unloadable:
            raise RuntimeError("the session could not be loaded")

    async def _keyed(self, key: str, judge: Callable[[Asked], Awaitable[Answer]], asked: Asked) -> Answer:
        """An idempotency key: its first answer is every answer; with another body it is refused."""
        jobs, digest = self._jobs, body_digest(asked)
        while known := jobs.state.keys.get(key):  # of several that waited for a first one which was refused, one is the next first
            admission.check_owner(jobs.state.head, asked)
            admission.check_same_body(key, known.digest, digest)
            if known.answer is not None:
                return _answer_type(judge).model_validate_json(known.answer)
            await workflow.wait_condition(lambda: key not in jobs.state.keys or jobs.state.keys[key].answer is not None)
        jobs.change(keys=remember(jobs.state.keys, key, KeyedAnswer(digest=digest)))
        try:
            answer = await judge(asked)
        except BaseException:
            jobs.change(keys=forget(jobs.state.keys, key))
            raise
        jobs.change(keys=remember(jobs.state.keys, key, KeyedAnswer(digest=digest, answer=answer.model_dump_json())))
        return answer

    async def heed(self, what: str, judge: Callable[[Asked], Awaitable[object]], kind: type[Asked], payloads: tuple[Any, ...]) -> None:
        """The same for a signal: what an update would refuse is recorded as a refusal, payloads of another shape too (L12)."""
        try:
            await self._ready()
            if self._ends():
                return
            asked = _decoded(kind, payloads)
            _check_caller(asked)
            await judge(asked)
        except Refusal as refusal:
            self._note(what, refusal.code, refusal.message)
        except Exception as error:
            workflow.logger.exception("a signal failed unexpectedly")
            self._note(what, "internal", f"{type(error).__name__} while the signal was judged")

    async def heed_result(self, what: str, judge: Callable[[ContinuationInput], Awaitable[object]], payloads: tuple[Any, ...]) -> None:
        """A host's result by signal, which nobody sends again: it waits in the state for as long as the live turn takes."""

        async def taken(continuation: ContinuationInput) -> None:
            jobs = self._jobs
            if jobs.busy or jobs.changing or jobs.state.results:
                jobs.change(results=(*jobs.state.results, WaitingResult(what=what, continuation=continuation)))
            else:
                await judge(continuation)

        await self.heed(what, taken, ContinuationInput, payloads)

    async def watch(self, judge: Callable[[ContinuationInput], Awaitable[object]]) -> None:
        """Judges the results that wait, one by one, each when nothing is under way. Lives as long as the run."""
        jobs = self._jobs

        async def taken(continuation: ContinuationInput) -> None:
            if not (jobs.busy or jobs.changing):  # else it waits on, behind somebody who woke up at the same moment
                jobs.change(results=jobs.state.results[1:])
                await judge(continuation)

        while True:
            await workflow.wait_condition(lambda: bool(jobs.state.results) and not (jobs.busy or jobs.changing or jobs.closing))
            first = jobs.state.results[0]
            await self.heed(first.what, taken, ContinuationInput, (first.continuation,))

    def _note(self, what: str, code: str, message: str) -> None:
        self.refused = True
        refusal = RecordedRefusal(what=what, code=code, message=message, at=workflow.now().isoformat())
        self._jobs.note_refusal(refusal)
        if self._jobs.state.head.born:
            self._jobs.enqueue(QueuedRefusal(refusal=refusal))


def _check_caller(asked: Input) -> None:
    """Raises Refusal. Runs that took such an input before there was this check go on as they went."""
    try:
        admission.check_caller(asked)
    except Refusal:
        if workflow.patched("callers-that-rows-can-hold"):
            raise


def _decoded(kind: type[Asked], payloads: tuple[Any, ...]) -> Asked:
    """A signal's one payload. Raises Refusal for none, several, or one that is no such input."""
    if len(payloads) != 1:
        raise Refusal("bad_request", f"a signal carries one payload, not {len(payloads)}")
    if isinstance(payloads[0], bytes):
        raise Refusal("bad_request", "payload: this is no JSON in UTF-8, or a text in it holds half a surrogate pair")
    try:
        return kind.model_validate(payloads[0])
    except ValidationError as error:
        misfit = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in misfit["loc"]) or "payload"
        raise Refusal("bad_request", f"{where}: {misfit['msg']}") from None


def _answer_type(judge: Callable[[Asked], Awaitable[Answer]]) -> type[Answer]:
    """What a judge answers with, as its signature says."""
    kind: type[Answer] = judge.__annotations__["return"]
    return kind
