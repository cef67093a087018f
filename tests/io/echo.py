"""A workflow that says back what it is told, directly or through an activity."""

from datetime import timedelta

from temporalio import activity, workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from workflows.model.base import Record


class Saying(Record):
    """Some text."""

    text: str = ""
    note: str | None = None
    through_activity: bool = False


@activity.defn
async def repeat(saying: Saying) -> Saying:
    return saying


@workflow.defn
class Echo:
    """Ends when told to, with all that it was told."""

    def __init__(self) -> None:
        self.said: list[Saying] = []
        self.over = False

    @workflow.run
    async def run(self) -> list[Saying]:
        await workflow.wait_condition(lambda: self.over and workflow.all_handlers_finished())
        return self.said

    @workflow.update
    async def say(self, saying: Saying) -> Saying:
        if saying.through_activity:
            retry = RetryPolicy(initial_interval=timedelta(seconds=0.2), backoff_coefficient=1)
            saying = await workflow.execute_activity(repeat, saying, start_to_close_timeout=timedelta(seconds=20), retry_policy=retry)
        self.said.append(saying)
        return saying

    @workflow.update
    async def fail(self, secret: str) -> None:
        raise ApplicationError(f"refused: {secret}", type="Refusal")

    @workflow.signal
    def end(self) -> None:
        self.over = True
