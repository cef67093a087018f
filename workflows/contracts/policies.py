"""Patience has a name: every timeout and retry of an activity, and when a session's history is rolled."""

from datetime import timedelta

from temporalio.common import RetryPolicy
from temporalio.workflow import ContinueAsNewVersioningBehavior

from workflows.model.call import OpenCall

STICKY_SECONDS = 2.0
"""How long a session waits for the worker that has it cached before another one takes it."""

DATABASE_RETRY_SECONDS = 0.5
"""How long a turn waits between tries while Postgres is away."""

WORKFLOW_TASK = timedelta(seconds=4)
"""How long a worker may take over a session's next decision. One that was handed to a worker as it stopped is given to another after
this; by default that takes ten seconds, longer than the api offers an input."""

HEARTBEAT = timedelta(seconds=6)
"""A worker that is silent for this long is dead (a turn goes on within 15 s of a worker being there, R88)."""

BEAT_EVERY_SECONDS = 0.5
"""How often a living activity says so; a cancellation travels back with the answer."""

ACTIVITY_LIFETIME = timedelta(hours=24)
"""A backstop. The step and the tool keep their own, shorter time limits."""

UNTIL_DONE = RetryPolicy(initial_interval=timedelta(seconds=0.2), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=5))
"""For writes that must happen: retried until they do."""

STEP = RetryPolicy(initial_interval=timedelta(seconds=0.2), backoff_coefficient=2.0, maximum_interval=timedelta(seconds=5))
"""For model steps: the step counts its provider's failures itself and names the next delay (sessions.md, Failure inside a turn)."""

ERASURE = timedelta(seconds=120)
"""One look at whether everything is gone."""

UNTIL_GONE = RetryPolicy(initial_interval=timedelta(seconds=1), backoff_coefficient=1.5, maximum_interval=timedelta(seconds=30))
"""For erasures, which wait for Temporal's own background work."""

ERASE_AGAIN = timedelta(seconds=1)
"""The pause before an erasure that found something left begins anew."""

IN_FLIGHT = timedelta(seconds=90)
"""Longer than any request takes from the moment when its payload was stored until the workflow's history refers to it."""

WRITE = timedelta(seconds=60)
"""One attempt of a write that needs no model."""


def tool(call: OpenCall) -> RetryPolicy:
    """A server tool runs again after its worker's death only if it is declared idempotent (sessions.md, Failure inside a turn)."""
    return RetryPolicy(
        initial_interval=timedelta(seconds=0.2), maximum_interval=timedelta(seconds=5), maximum_attempts=0 if call.idempotent else 1
    )


TOOL_RETRY_SECONDS = 0.5
"""Times the attempt's number: the pause before a tool that raised runs again, if its author allows more than one attempt."""

PROVIDER_ATTEMPTS = 4
PROVIDER_BACKOFF = 2.0
RETRY_AFTER_CAP_SECONDS = 30.0

PROVIDER_SILENCE_SECONDS = 60.0
"""How long a provider may take to answer, and to go on in the middle of a stream, before the request counts as timed out."""

TOOL_ARGUMENT_RETRIES = 2
"""How often malformed arguments of one tool go back to the model in a turn before the call fails."""

ROLL_EVENTS = 600
ROLL_BYTES = 1_000_000
ROLL_UPDATES = 200
"""A run continues as new at any of these, between turns."""

NEXT_RUN = ContinueAsNewVersioningBehavior.AUTO_UPGRADE
"""Where a run that is pinned to a build continues as new: on the version that is current by then. Workers without a version know none."""

FULL_EVENTS = 40_000
FULL_BYTES = 30_000_000
FULL_UPDATES = 1_800
"""A run that has so much takes no message and no steering until it continues as new, and a turn in it asks for nothing more and ends with
`usage_limit`. Temporal terminates a workflow at 51,200 events or 50 MB and takes 2,000 updates: what is left is for what is under way."""

FULL_WAITING = 32_000_000
"""Characters of content that may wait in a session, which a run hands to the next one: that has seconds to read them."""

CALLS_AT_ONCE = 100
"""How many server calls of a response run side by side. Their results are in the history before it is known how long it has become: at
most so many times the inline limit."""

CARRIED_IDS = 30
"""How many of them a run hands to the next one: the carried state is paid for at each rollover, and rows know the older ids by then (L1)."""

RECENT_IDS = 300
"""Accepted ids that the workflow remembers itself; older ones are looked up in rows by the api."""

LATE_INPUT_WAIT = timedelta(seconds=2)
"""How long a continuation waits inside the workflow for the end of a live turn before it is sent back to wait outside."""

KNOWN_END_WAIT = timedelta(seconds=15)
"""How long any input waits inside the workflow for a live turn whose end the rows show already: so long may it take until a worker that
lost it is replaced (R88)."""

TOMBSTONE_LIFE = timedelta(minutes=10)
"""How long a cancel of a turn that has not come is remembered."""
