"""What an operator sees of a session in the Temporal Web UI: search attributes and current details."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from temporalio.common import SearchAttributeUpdate

from workflows.contracts.search_attributes import PENDING_TOOL, PRINCIPAL, PROFILE, STATUS, TENANT, TURN, WAITING_SINCE
from workflows.model.state import Head
from workflows.rules.state import profile_of, status_of

MOST_CHARACTERS = 255
"""Of what names something. Temporal terminates a workflow that gives a search attribute more than it takes."""


def attributes(tenant: str, head: Head) -> Sequence[SearchAttributeUpdate[Any]]:
    """A session's search attributes while no turn runs. What it waits for is there only while it waits."""
    pending = head.batch.pending if head.batch else None
    since = head.batch.since if head.batch and pending else ""
    return [
        TENANT.value_set(tenant[:MOST_CHARACTERS]),
        PRINCIPAL.value_set((head.owner or "")[:MOST_CHARACTERS]),
        PROFILE.value_set(profile_of(head, None)[:MOST_CHARACTERS]),
        STATUS.value_set(status_of(head, False)),
        TURN.value_set(head.turn_number),
        PENDING_TOOL.value_set(pending.tool_name[:MOST_CHARACTERS]) if pending else PENDING_TOOL.value_unset(),
        WAITING_SINCE.value_set(datetime.fromisoformat(since)) if since else WAITING_SINCE.value_unset(),
    ]


def details(head: Head, running: int | None = None) -> str:
    """The same and more in Markdown, for a person. `running` is the number of the turn that runs."""
    last = head.last_turn
    stands = f"**{status_of(head, running is not None)}**, turn {running or head.turn_number}, profile `{profile_of(head, None)}`"
    lines = []
    if head.batch and head.batch.pending and running is None:
        others = len(head.batch.open) - 1
        more = f" and {others} more" if others else ""
        lines.append(f"- waits for the host to do `{head.batch.pending.tool_name}`{more}{_since(head.batch.since)}")
    if last and last.error:
        lines.append(f"- the last turn ended with `{last.error.type}`{', and may be retried' if last.error.retry_allowed else ''}")
    if head.expires_at:
        lines.append(f"- expires at {_to_the_second(head.expires_at)}")
    return "\n".join([stands, *([""] if lines else []), *lines])


def _since(at: str) -> str:
    return f", since {_to_the_second(at)}" if at else ""


def _to_the_second(at: str) -> str:
    return datetime.fromisoformat(at).isoformat(" ", "seconds")
