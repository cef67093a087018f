"""A workflow that looks at the clock behind Temporal's back. The sandbox must stop it."""

import datetime

from temporalio import workflow


@workflow.defn
class Canary:
    @workflow.run
    async def run(self) -> str:
        return datetime.datetime.now().isoformat()


@workflow.defn
class Obedient:
    @workflow.run
    async def run(self) -> str:
        return workflow.now().isoformat()
