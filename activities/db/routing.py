"""Which workers Temporal sends a task queue's sessions to: those of one version, or those without any."""

from collections.abc import Mapping, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio.api.deployment.v1 import WorkerDeploymentVersion as VersionMessage
from temporalio.api.enums.v1 import TaskQueueType, VersionDrainageStatus, WorkerVersioningMode
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest, DescribeTaskQueueResponse, DescribeWorkerDeploymentRequest
from temporalio.client import Client
from temporalio.common import WorkerDeploymentVersion
from temporalio.service import RPCError, RPCStatusCode

from settings import WorkerSettings

Version = WorkerDeploymentVersion | None
"""A version of a Worker Deployment; None stands for workers without one."""

SET_CURRENT = "temporal worker deployment set-current-version"

POLLED_WITHIN = timedelta(seconds=90)
"""Idle workers ask again every minute; one that has not for this long is gone, though Temporal lists it for five."""


@dataclass(frozen=True)
class Routing:
    """Where a task queue's sessions go. `current` takes those that begin, that roll or that have no version yet, except for the
    `percentage` (0 to 100) of them that `ramping` takes. `polled` are the versions whose workers ask for work.
    """

    task_queue: str
    current: Version
    ramping: Version
    percentage: float
    polled: Set[Version]

    @property
    def served(self) -> bool:
        """Whether a worker asks for the work of new sessions."""
        return self.current in self.polled

    @property
    def ramp_served(self) -> bool:
        """Whether a worker asks for the work of the ramp's part, if there is one."""
        return self.percentage <= 0 or self.ramping in self.polled

    def shortfall(self) -> str | None:
        """Why new sessions find no worker, in one line; None if they find one."""
        if self.served:
            return None
        if not self.polled:
            return f"no worker asks for work on task queue {self.task_queue}"
        asking = ", ".join(sorted(named(version) for version in self.polled))
        return (
            f"new sessions of task queue {self.task_queue} go to {named(self.current)}, and only {asking} ask for work: "
            f"start such a worker, or make another version current with `{SET_CURRENT}`"
        )

    def ramp(self) -> str | None:
        """How new sessions are divided, in one line, and whether nobody takes the smaller part; None where all go to the current version."""
        if self.percentage <= 0:
            return None
        told = f"{named(self.ramping)} get {self.percentage:g} % of the sessions that begin or roll, the others go to {named(self.current)}"
        return told if self.ramp_served else f"{told}; {named(self.ramping)} do not ask for work"

    def concern(self, own: Version) -> str | None:
        """What a worker of version `own` should know if new sessions do not come to it, in one line."""
        if own == self.current:
            return None
        if own == self.ramping and self.percentage > 0:
            return self.ramp()
        if own is None and self.current is not None:
            return (
                f"new sessions go to {named(self.current)}, {named(own)} get nothing: set OUTLAST_WORKER__DEPLOYMENT and "
                f"OUTLAST_WORKER__BUILD_ID, or `{SET_CURRENT} --deployment-name {self.current.deployment_name} --unversioned`"
            )
        assert own is not None
        command = f"{SET_CURRENT} --deployment-name {own.deployment_name} --build-id {own.build_id}"
        return f"new sessions go to {named(self.current)}; {named(own)} get them after `{command}`"


def named(version: Version) -> str:
    """A version's workers, for people."""
    return f"workers of {spelled(version)}" if version else "workers without a version"


def spelled(version: WorkerDeploymentVersion) -> str:
    """A version as Temporal's search attributes and command line write it."""
    return f"{version.deployment_name}:{version.build_id}"


def own_version(settings: WorkerSettings) -> Version:
    """The version that a worker with these settings is."""
    return WorkerDeploymentVersion(settings.deployment, settings.build_id) if settings.deployment else None


async def routing_of(client: Client, task_queue: str) -> Routing:
    """Where Temporal sends the sessions of a task queue. A change of the current version shows within a second or two. Raises RPCError."""
    answer = await _described(client, task_queue)
    since = datetime.now(UTC) - POLLED_WITHIN
    told = answer.versioning_info
    return Routing(
        task_queue=task_queue,
        current=_version(told.current_deployment_version),
        ramping=_version(told.ramping_deployment_version),
        percentage=told.ramping_version_percentage,
        polled={_polled_as(poller) for poller in answer.pollers if poller.last_access_time.ToDatetime(UTC) >= since},
    )


async def longest_wait(client: Client, task_queue: str) -> timedelta:
    """For how long the oldest workflow task of the queue, of whatever version, has been waiting for a worker: Temporal's estimate, zero
    where none waits. Raises RPCError.
    """
    answer = await _described(client, task_queue, stats=True)
    return answer.stats.approximate_backlog_age.ToTimedelta()


async def left_behind(client: Client, routing: Routing, deployment: str) -> dict[WorkerDeploymentVersion, int]:
    """How many open runs of the task queue are pinned to each version that is current no more. The list that counts them may lag behind
    by a second. Raises RPCError.
    """
    try:
        described = await client.workflow_service.describe_worker_deployment(
            DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment)
        )
    except RPCError as error:
        if error.status == RPCStatusCode.NOT_FOUND:
            return {}
        raise
    draining = VersionDrainageStatus.VERSION_DRAINAGE_STATUS_DRAINING
    summaries = described.worker_deployment_info.version_summaries
    found = {}
    for version in (_version(each.deployment_version) for each in summaries if each.drainage_status == draining):
        if version is not None:
            pinned = f"TemporalWorkerDeploymentVersion = '{spelled(version)}'"
            query = f"TaskQueue = '{routing.task_queue}' AND ExecutionStatus = 'Running' AND {pinned}"
            found[version] = (await client.count_workflows(query)).count
    return {version: count for version, count in found.items() if count}


def remainders(found: Mapping[WorkerDeploymentVersion, int], polled: Set[Version]) -> tuple[str, str]:
    """What `left_behind` found, in words: runs that have workers of their version, and runs that have none. Empty: no such runs."""
    served, alone = (
        ", ".join(f"{count} on {spelled(version)}" for version, count in found.items() if (version in polled) is has)
        for has in (True, False)
    )
    return (
        f"open runs of earlier versions: {served}" if served else "",
        f"open runs of versions without workers: {alone}; start workers of them, or move the runs (docs/operations.md)" if alone else "",
    )


async def _described(client: Client, task_queue: str, *, stats: bool = False) -> DescribeTaskQueueResponse:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=task_queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        report_stats=stats,
    )
    return await client.workflow_service.describe_task_queue(request)


def _version(message: VersionMessage) -> Version:
    return WorkerDeploymentVersion(message.deployment_name, message.build_id) if message.build_id else None


def _polled_as(poller: PollerInfo) -> Version:
    options = poller.deployment_options
    if options.worker_versioning_mode != WorkerVersioningMode.WORKER_VERSIONING_MODE_VERSIONED:
        return None
    return WorkerDeploymentVersion(options.deployment_name, options.build_id)


__all__ = ["Routing", "Version", "left_behind", "longest_wait", "named", "own_version", "remainders", "routing_of", "spelled"]
