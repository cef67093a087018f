"""The Temporal client of api and worker, and how values become payloads."""

import asyncio
import logging
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from temporalio.api.common.v1 import Payload
from temporalio.client import Client, Interceptor, WithStartWorkflowOperation
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import PydanticJSONPlainPayloadConverter, PydanticPayloadConverter, ToJsonOptions
from temporalio.converter import (
    CompositePayloadConverter,
    DataConverter,
    DefaultFailureConverterWithEncodedAttributes,
    ExternalStorage,
    PayloadCodec,
)
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryFilter
from temporalio.service import RetryConfig

from activities.db.encryption import codec_of, locked
from activities.db.storage import Storage
from activities.db.temporal_config import connect_config
from settings import Settings
from workflows.contracts.errors import ServiceUnavailable, SetupError
from workflows.contracts.inputs import SessionStart
from workflows.contracts.naming import SESSION_WORKFLOW, session_workflow_id
from workflows.contracts.policies import WORKFLOW_TASK

SDK_LOGS = LoggingConfig(
    filter=TelemetryFilter(core_level="WARN", other_level="ERROR"),
    forwarding=LogForwardingConfig(logger=logging.getLogger("temporalio.core")),
)
"""What the SDK's core logs goes where everything else goes, in the same form."""

ONE_TRY = RetryConfig(max_retries=1)
"""The api repeats a call itself, under the same id and within its own deadline; the SDK's retries would hide how long that takes."""


_MESSAGE = re.compile(r'\b(?:message|error): "(?P<text>(?:[^"\\]|\\.)*)"')


def words_of_core(error: BaseException) -> str:
    """What the SDK's core says in an error or in the one at the bottom of it, in one line, without the structure that carried it."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split()) or type(error).__name__
    found = _MESSAGE.search(text)
    return found["text"].replace('\\"', '"') if found else text


_JSON = PydanticJSONPlainPayloadConverter(ToJsonOptions(exclude_unset=True))
_PARTS = tuple({**PydanticPayloadConverter().converters, _JSON.encoding.encode(): _JSON}.values())
"""One of each for the whole process: the SDK makes a converter anew for each payload's context, and theirs remember the types that they have seen."""


class RecordPayloadConverter(CompositePayloadConverter):
    """JSON by pydantic, without the fields that were left at their defaults: histories are kept for long, and those need no room in them.

    Hence a record's default is part of its contract: changing one would change what old histories mean.
    """

    def __init__(self) -> None:
        super().__init__(*_PARTS)

    def from_payloads(self, payloads: Sequence[Payload], type_hints: list[type] | None = None) -> list[Any]:
        """The values. What can't be read (half a surrogate pair in JSON, an encoding that nobody knows) is its bytes where any value is
        taken: the SDK would drop such a signal, and its sender would never hear of it.

        Raises PayloadUnreadable for what no codec has decrypted, as there is no key.
        """
        try:
            return super().from_payloads(payloads, type_hints)
        except Exception as error:
            if (unreadable := locked(payloads)) is not None:
                raise unreadable from error
            if type_hints is not None:
                raise
            return [self._any(payload) for payload in payloads]

    def _any(self, payload: Payload) -> Any:
        try:
            return super().from_payloads([payload])[0]
        except Exception:
            return payload.data


def data_converter(storage: ExternalStorage | None, codec: PayloadCodec | None = None) -> DataConverter:
    """How values become payloads, for clients, workers and replays alike.

    Records as JSON; then, if there is one, `codec`, which encrypts; then what is too large goes to `storage` (None: everything stays in
    the history). Messages and stack traces of failures go the same way.
    """
    return DataConverter(
        payload_converter_class=RecordPayloadConverter,
        payload_codec=codec,
        failure_converter_class=DefaultFailureConverterWithEncodedAttributes,
        external_storage=storage,
    )


async def connect(
    settings: Settings,
    storage: Storage,
    address: str | None = None,
    *,
    for_api: bool,
    runtime: Runtime | None = None,
    interceptors: Sequence[Interceptor] = (),
) -> Client:
    """A client as Temporal's own `TEMPORAL_*` variables or TOML profile say; `address` (host:port), where given, goes before theirs.

    `for_api`: connects when first used, so that reads work while Temporal is down, and tries each call once. Else it connects now,
    as a worker needs it. `runtime`: whose metrics count what it does. Raises SetupError for a configuration or a key that can't be read, ServiceUnavailable if Temporal does not answer.
    """
    config = connect_config()
    if address is not None:
        config["target_host"] = address
    config.setdefault("target_host", "127.0.0.1:7233")
    converter = data_converter(storage.external(), codec_of(settings.codec.keys))
    try:
        return await Client.connect(
            **config,
            data_converter=converter,
            runtime=runtime,
            interceptors=interceptors,
            lazy=for_api,
            retry_config=ONE_TRY if for_api else None,
        )
    except ValueError as error:
        raise SetupError(f"Temporal's address {config['target_host']!r}: {error}") from error
    except RuntimeError as error:
        where = config["target_host"]
        raise ServiceUnavailable("temporal", f"Temporal does not answer at {where}: {words_of_core(error)}") from error


def session_start(tenant: str, session_id: str, task_queue: str, summary: str | None = None) -> WithStartWorkflowOperation[object, object]:
    """Starts a session's workflow with an update, unless it runs already. `summary` is what lists show of a new one."""
    return WithStartWorkflowOperation(
        SESSION_WORKFLOW,
        SessionStart(tenant=tenant, session_id=session_id),
        id=session_workflow_id(tenant, session_id),
        task_queue=task_queue,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        task_timeout=WORKFLOW_TASK,
        static_summary=summary,
    )


async def forget_failure(operation: WithStartWorkflowOperation[object, object]) -> None:
    """Takes the failure out of the operation too, which keeps it for who asks for the started workflow: else it is logged as lost."""
    with suppress(Exception, asyncio.CancelledError):
        async with asyncio.timeout(0):
            await operation.workflow_handle()


__all__ = ["SDK_LOGS", "RecordPayloadConverter", "connect", "data_converter", "forget_failure", "session_start", "words_of_core"]
