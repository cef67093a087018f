"""What a story is, and how it is told to the whole system so that its histories have the same structure each time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import httpx
from temporalio.client import Interceptor as ClientInterceptor
from temporalio.client import WorkflowHandle, WorkflowHistory
from temporalio.exceptions import ApplicationError
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from tests.models import Behaviour
from tests.services import PATIENCE_SECONDS
from tests.system import Answer, System

Tell = Callable[["Told"], Awaitable[None]]
Before = Callable[[str, Any], Awaitable[None]]
After = Callable[[str, Any], Awaitable[Any]]


class Told(System):
    """A system whose sessions have come to rest when they have answered.

    Rows say so a moment before the workflow hears of it, and an input that came in that moment would be in the history elsewhere.
    """

    @classmethod
    def of(cls, system: System) -> "Told":
        """The same one."""
        return cls(**{each.name: getattr(system, each.name) for each in fields(system)})

    async def chat(self, session: str, content: str = "hello", **fields: Any) -> Answer:
        answer = await super().chat(session, content, **fields)
        await self.at_rest(session)
        return answer

    async def resume(self, session: str, call_id: str, result: Any = "ok", **fields: Any) -> httpx.Response:
        answer = await super().resume(session, call_id, result, **fields)
        await self.at_rest(session)
        return answer

    async def idle(self, session: str, turns: int, *, seconds: float = PATIENCE_SECONDS) -> None:
        await super().idle(session, turns, seconds=seconds)
        await self.at_rest(session)

    async def at_rest(self, session: str) -> None:
        """Waits until neither a task nor an activity of a session is under way."""

        async def rests() -> bool:
            found = (await self.workflow(session).describe()).raw_description
            return not found.pending_activities and not found.HasField("pending_workflow_task")

        await self.until(rests)


class Between(ClientInterceptor, Interceptor):
    """Stands between the activities and the server: a story's `before` sees what each is asked, and may keep it waiting; its
    `after` sees each result, and answers what the workflow gets to see.
    """

    def __init__(self) -> None:
        self.before: Before = _at_once
        self.after: After = _unchanged

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Watched(next, self)


async def _at_once(_: str, __: Any) -> None:
    return None


async def _unchanged(_: str, done: Any) -> Any:
    return done


def losing(which: Callable[[str, Any], bool], *, once: asyncio.Event | None = None) -> After:
    """Loses these results, by activity and what it came to; `once` an event is set, if one is given."""

    async def after(name: str, done: Any) -> Any:
        if which(name, done):
            if once:
                await once.wait()
            raise ApplicationError("the result is lost", non_retryable=name in ("run_step", "run_tool"))
        return done

    return after


def until_set(go_on: asyncio.Event, activity: str) -> After:
    """Keeps the results of an activity back: until the event is set it is under way, as the workflow sees it."""

    async def after(name: str, done: Any) -> Any:
        if name == activity:
            await go_on.wait()
        return done

    return after


def failing(activity: str, words: str) -> After:
    """Each try of an activity fails with these words, as `Lost`, once it has done what it does."""

    async def after(name: str, done: Any) -> Any:
        if name == activity:
            raise ApplicationError(words, type="Lost")
        return done

    return after


class _Watched(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, between: Between) -> None:
        super().__init__(next)
        self._between = between

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        await self._between.before(input.fn.__name__, input.args[0] if input.args else None)
        return await self._between.after(input.fn.__name__, await self.next.execute_activity(input))


@dataclass(frozen=True)
class Story:
    """`rules` are those of docs/rules.md that it tells of. Each of `tells` is told to processes of its own, which come one after the other.

    `behaviours` are the model's, one a request; `settings` what the system is started with. What it says in `kept` goes with its histories.
    """

    rules: str
    tells: Sequence[Tell]
    behaviours: Sequence[Behaviour]
    settings: dict[str, Any] = field(default_factory=dict)
    between: Between = field(default_factory=Between)
    kept: list[WorkflowHistory] = field(default_factory=list)


async def to_its_end(handle: "WorkflowHandle[Any, Any]") -> WorkflowHistory:
    """A history that is about to be erased, up to the moment when its run ends."""
    return WorkflowHistory(handle.id, [event async for event in handle.fetch_history_events(wait_new_event=True)])


def asked(system: System, **fields: Any) -> dict[str, Any]:
    """A payload of a signal or an update, from the system's own caller."""
    return {"tenant": system.tenant, "principal": "local", "roles": ["admin"], **fields}
