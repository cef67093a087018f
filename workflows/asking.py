"""How the workflow asks activities: by their stubs, and with results that are decoded here.

A result that does not decode (a worker of another release wrote it) is then an exception like any other, and the turn ends with a
reason. Decoded by Temporal it would be a fault of the workflow task, which is retried for ever (L12).
"""

from collections.abc import Awaitable, Callable
from inspect import signature
from typing import TypeVar

from temporalio import workflow
from temporalio.common import RawValue, RetryPolicy

from workflows.contracts import policies
from workflows.model.base import Record

Asked = TypeVar("Asked", bound=Record)
Done = TypeVar("Done", bound=Record | None)
Stub = Callable[[Asked], Awaitable[Done]]


async def written(stub: Stub[Asked, Done], asked: Asked, summary: str) -> Done:
    """Asks for a write that must happen, for as long as that takes, and answers what came of it."""
    handle = workflow.start_activity(
        stub.__name__,
        asked,
        result_type=RawValue,
        start_to_close_timeout=policies.WRITE,
        retry_policy=policies.UNTIL_DONE,
        summary=summary,
    )
    return decoded(stub, await handle)


async def erased(stub: Stub[Asked, Done], asked: Asked, summary: str) -> Done:
    """Asks for a part of an erasure, for as long as it takes. Whatever it fails of, it is asked for again: nobody waits, nothing may stay."""
    handle = workflow.start_activity(
        stub.__name__,
        asked,
        result_type=RawValue,
        start_to_close_timeout=policies.ERASURE,
        heartbeat_timeout=policies.HEARTBEAT,
        retry_policy=policies.UNTIL_GONE,
        summary=summary,
    )
    return decoded(stub, await handle)


def begun(stub: Stub[Asked, Done], asked: Asked, retry_policy: RetryPolicy, summary: str) -> "workflow.ActivityHandle[RawValue]":
    """Starts a model step or a tool: it says that it is alive, and a cancel waits for what it has by then."""
    return workflow.start_activity(
        stub.__name__,
        asked,
        result_type=RawValue,
        start_to_close_timeout=policies.ACTIVITY_LIFETIME,
        heartbeat_timeout=policies.HEARTBEAT,
        retry_policy=retry_policy,
        cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
        summary=summary,
    )


def decoded(stub: Stub[Asked, Done], raw: RawValue | None) -> Done:
    """The result as the stub declares it. Raises what the decoding raises."""
    declared: type[Done] = signature(stub).return_annotation
    done: Done = workflow.payload_converter().from_payload(raw.payload, declared) if raw is not None and declared is not None else None  # type: ignore[assignment]
    return done
