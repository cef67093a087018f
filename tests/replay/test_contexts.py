"""Whose a payload is, as the sandbox of workers answers it, is what the SDK's own would have said: in each kept history, for each payload."""

from typing import Any

from temporalio.api.enums.v1 import CommandType
from temporalio.converter import ActivitySerializationContext, StorageDriverStoreContext, WorkflowSerializationContext
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails

from activities.db.client import data_converter
from activities.db.encryption import KEY_BYTES, AesGcmCodec
from activities.db.pool import Database
from activities.db.storage import Storage
from activities.sandbox import Sandbox
from settings import DatabaseSettings, Settings
from tests.replay.corpus import KEPT
from tests.replay.test_histories import replayed, replayer
from worker import workflow_runner

KINDS = {
    None,
    CommandType.COMMAND_TYPE_SCHEDULE_ACTIVITY_TASK,
    CommandType.COMMAND_TYPE_START_CHILD_WORKFLOW_EXECUTION,
    CommandType.COMMAND_TYPE_COMPLETE_WORKFLOW_EXECUTION,
}
"""What the payloads of the kept histories belong to."""


def seen(context: Any) -> tuple[str, str | None]:
    """What codec and storage look at."""
    assert isinstance(context, WorkflowSerializationContext | ActivitySerializationContext)
    return context.namespace, context.workflow_id


class Compared(Sandbox):
    """Asks both and remembers what about."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        instance: Any = super().create_instance(det)
        serialized, stored = instance.get_serialization_context, instance.get_external_store_context

        def get_serialization_context(command: Any) -> Any:
            kinds["serialized"].add(command and command.command_type)
            assert seen(serialized(command)) == seen(instance._inner.get_serialization_context(command))
            return serialized(command)

        def get_external_store_context(command: Any) -> StorageDriverStoreContext:
            kinds["stored"].add(command and command.command_type)
            answer: StorageDriverStoreContext = stored(command)
            assert answer == instance._inner.get_external_store_context(command)
            return answer

        instance.get_serialization_context = get_serialization_context
        instance.get_external_store_context = get_external_store_context
        return instance  # type: ignore[no-any-return]


kinds: dict[str, set[int | None]] = {"serialized": set(), "stored": set()}


async def test_s60_the_sandbox_knows_whose_a_payload_is() -> None:
    settings = Settings(database=DatabaseSettings(url="postgresql://127.0.0.1:1/none"))
    database = await Database.open(settings.database)
    outside = Storage(settings, database).external(read_only=True)
    judge = replayer(
        converter=data_converter(outside, AesGcmCodec({"k": bytes(KEY_BYTES)})),
        runner=Compared(restrictions=workflow_runner().restrictions),
    )
    assert dict((await replayed(judge, KEPT)).replay_failures) == {}
    await database.close()
    assert kinds == {"serialized": KINDS, "stored": KINDS}
