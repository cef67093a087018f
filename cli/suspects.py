"""Which workflows `outlast stuck` asks: those with work, and sessions at rest whose next decision perhaps no worker takes.

A signal to a session that nobody serves leaves no trace in rows or lists. But Temporal tells which versions ask for work, and how long the
oldest task of a queue has been waiting.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from activities.db.pool import Database
from activities.db.routing import Routing, longest_wait, routing_of, spelled
from activities.db.running import running_turns
from cli.listing import listed
from workflows.contracts.errors import ServiceUnavailable, SetupError
from workflows.contracts.naming import ERASURE_WORKFLOW, PRINCIPAL_ERASURE_WORKFLOW, SESSION_WORKFLOW, session_workflow_id

MOST = 1000
"""Workflows with work that are asked, and as many sessions at rest."""

OPEN = "TaskQueue = '{queue}' AND ExecutionStatus = 'Running'"

SUSPECT = (
    f"{OPEN} AND (TemporalReportedProblems IS NOT NULL "
    f"OR (WorkflowType = '{SESSION_WORKFLOW}' AND OutlastTurn IS NULL) "
    f"OR WorkflowType IN ('{ERASURE_WORKFLOW}', '{PRINCIPAL_ERASURE_WORKFLOW}'))"
)
"""What rows don't show: tasks that fail, sessions in their first turn, erasures."""

PINNED = "TemporalWorkflowVersioningBehavior = 'Pinned'"
FREE = "(TemporalWorkflowVersioningBehavior IS NULL OR TemporalWorkflowVersioningBehavior != 'Pinned')"
"""Sessions that the next decision takes to the current version, also those that rolled and have not gone on yet."""


@dataclass(slots=True)
class Suspects:
    """Workflow ids of `busy` ones and of sessions at `rest`, each once.

    `oldest`: for how long the oldest task of the queue has been waiting, as Temporal estimates it; zero if none waits. `remarks` say what
    is not looked at; `cut`: whether there are sessions at rest among it.
    """

    oldest: timedelta
    busy: list[str] = field(default_factory=list)
    rest: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    cut: bool = False


async def gathered(client: Client, database: Database, queue: str, waiting: timedelta) -> Suspects:
    """The workflows to ask. `waiting`: from how long a wait for a worker on there is something to look for. Raises ServiceUnavailable."""
    turns = await running_turns(database, MOST)
    runs = await listed(client, SUSPECT.format(queue=queue), MOST)
    try:
        routing, oldest = await routing_of(client, queue), await longest_wait(client, queue)
    except RPCError as error:
        raise ServiceUnavailable("temporal", f"Temporal does not describe task queue {queue}: {error.message}") from error
    suspects = Suspects(oldest)
    ids = [session_workflow_id(turn.tenant, turn.session_id) for turn in turns]
    suspects.busy = list(dict.fromkeys([*ids, *(run.id for run in runs)]))
    if max(len(turns), len(runs)) == MOST:
        suspects.remarks.append(f"only {MOST} of the running turns are looked at, the oldest ones")
    if shortfall := routing.shortfall():
        suspects.remarks.append(shortfall)
    try:
        for condition in _at_rest(routing, backlog=oldest > waiting):
            await _add(client, suspects, f"{OPEN.format(queue=queue)} AND WorkflowType = '{SESSION_WORKFLOW}' AND {condition}")
            if suspects.cut:
                break
    except SetupError as error:
        suspects.remarks.append(f"sessions at rest are not looked at, this server can't list them by version: {error}")
        suspects.cut = True
    return suspects


def _at_rest(routing: Routing, *, backlog: bool) -> Iterator[str]:
    """Filters of sessions that may wait for a worker, the likeliest first."""
    names = ", ".join(sorted(f"'{spelled(version)}'" for version in routing.polled if version))
    yield f"{PINNED} AND TemporalWorkerDeploymentVersion NOT IN ({names})" if names else PINNED
    if not routing.served or not routing.ramp_served:
        yield FREE
    if backlog:  # workers that are gone count as asking for a while
        if (current := routing.current) is not None:
            yield f"{PINNED} AND TemporalWorkerDeploymentVersion != '{spelled(current)}'"
        yield "ExecutionTime IS NOT NULL"


async def _add(client: Client, suspects: Suspects, query: str) -> None:
    """Adds what the filter finds, as far as there is room."""
    runs = await listed(client, query, MOST)
    known = {*suspects.busy, *suspects.rest}
    found = [run.id for run in runs if run.id not in known]
    room = MOST - len(suspects.rest)
    suspects.rest += found[:room]
    if len(found) > room or len(runs) == MOST:
        suspects.cut = True
        count = (await client.count_workflows(query)).count
        suspects.remarks.append(
            f"sessions at rest that are looked at: {len(suspects.rest)}, those whose runs are the newest; {count} may wait for a worker, which "
            f"`temporal workflow count --query` with this filter counts: {query}"
        )


__all__ = ["Suspects", "gathered"]
