"""The floor: what Temporal itself asks for one update whose handler runs one activity that does nothing."""

from datetime import timedelta

from temporalio import activity, workflow

FLOOR_QUEUE = "bench-floor"


@activity.defn
async def nothing() -> None:
    """Does nothing."""


@workflow.defn
class FloorWorkflow:
    """Takes updates until it is terminated."""

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def turn(self) -> None:
        """Runs the activity."""
        await workflow.execute_activity(nothing, start_to_close_timeout=timedelta(seconds=60))
