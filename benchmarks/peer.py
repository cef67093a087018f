"""Peer (a): a session written with pydantic-ai's own durability for Temporal. The whole conversation is workflow state."""

from pydantic_ai import Agent
from pydantic_ai.durable_exec.temporal import PydanticAIWorkflow, TemporalDurability
from pydantic_ai.messages import ModelMessage
from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from benchmarks.instant import instant_model

PEER_QUEUE = "bench-peer"
agent = Agent(instant_model(), name="peer", instructions="You are a helpful assistant.", capabilities=[TemporalDurability()])


@workflow.defn
class PeerWorkflow(PydanticAIWorkflow):
    """Takes messages until it is terminated."""

    __pydantic_ai_agents__ = [agent]  # noqa: RUF012 (the plugin reads a plain attribute of this name)

    def __init__(self) -> None:
        self._messages: list[ModelMessage] = []

    @workflow.run
    async def run(self) -> None:
        await workflow.wait_condition(lambda: False)

    @workflow.update
    async def turn(self, content: str) -> str:
        """One turn: the agent is run on the whole conversation, and its answer is returned."""
        result = await agent.run(content, message_history=self._messages)
        self._messages = result.all_messages()
        return result.output
