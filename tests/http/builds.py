"""Workers of more than one build on one task queue, and what an operator types to move sessions between them."""

import asyncio
from typing import Literal
from uuid import uuid4

from activities.db.routing import routing_of
from cli.services.temporal import temporal_binary
from settings import WorkerSettings
from tests.system import System

PARTITIONS = 4
"""Of a task queue. Each learns of a new current version by itself, a few hundredths of a second after the first."""


class Builds:
    """Builds of one deployment, which no other test has."""

    def __init__(self) -> None:
        self.deployment = f"outlast-{uuid4().hex[:8]}"

    def settings(self, build_id: str, versioning: Literal["pinned", "auto_upgrade"] = "pinned") -> WorkerSettings:
        """Settings of a worker."""
        return WorkerSettings(deployment=self.deployment, build_id=build_id, versioning=versioning)

    async def make_current(self, system: System, build_id: str) -> None:
        """As an operator does, once the build is known; then waits until it is known everywhere."""
        named = ("--deployment-name", self.deployment, "--build-id", build_id)

        async def known() -> bool:
            return (await temporal(system, "worker", "deployment", "describe-version", *named))[0] == 0

        await system.until(known)
        code, said = await temporal(system, "worker", "deployment", "set-current-version", *named, "--yes")
        assert code == 0, said
        for partition in range(PARTITIONS):
            name = f"/_sys/{system.tenant}/{partition}" if partition else system.tenant
            await system.until(lambda name=name: _goes_to(system, name, build_id))  # type: ignore[misc]

    async def stay(self, system: System, build_id: str, expected: int) -> None:
        """Waits until lists show so many open sessions on a build."""
        asked = f"TemporalWorkerDeploymentVersion = '{self.deployment}:{build_id}' AND ExecutionStatus = 'Running'"

        async def counted() -> bool:
            return (await system.temporal.count_workflows(asked)).count == expected

        await system.until(counted)

    async def roll_all(self, system: System, build_id: str) -> None:
        """Sends `roll` to every session that stays on a build."""
        asked = f"TemporalWorkerDeploymentVersion = '{self.deployment}:{build_id}' AND ExecutionStatus = 'Running'"
        code, said = await temporal(system, "workflow", "signal", "--query", asked, "--name", "roll", "--reason", "test", "--yes")
        assert code == 0, said


async def _goes_to(system: System, task_queue: str, build_id: str) -> bool:
    current = (await routing_of(system.temporal, task_queue)).current
    return current is not None and current.build_id == build_id


async def temporal(system: System, *arguments: str) -> tuple[int, str]:
    """Runs Temporal's own command line; exit code and output."""
    process = await asyncio.create_subprocess_exec(
        temporal_binary(), *arguments, "--address", system.address, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode()


async def where(system: System, session: str) -> tuple[str, str]:
    """The build that a session's open run is on, and the run."""
    described = await system.workflow(session).describe()
    info = described.raw_description.workflow_execution_info.versioning_info
    return info.deployment_version.build_id, described.run_id
