"""Stories whose histories are kept: what a session goes through, told to the whole system."""

import asyncio
from collections.abc import Awaitable, Callable

from pydantic_ai.exceptions import ModelHTTPError

from tests.models import Behaviour, calls, hangs, raises, says
from tests.system import System
from workflows.contracts.inputs import CancelInput, ContinuationInput, MessageInput

Story = Callable[[System], Awaitable[None]]
BATCH = calls(("h1", "open_page", {"url": "a"}), ("h2", "ask_user", {"question": "b"}), text="Two things.")


async def _turns(system: System) -> None:
    await system.chat("turns", "one")
    await system.chat("turns", "two", id="m2")
    await system.chat("turns", "two", id="m2")
    await system.chat("turns", "branch", parent_id="m2")
    refused = await system.post("/chat", {"session_id": "turns", "content": "other", "id": "m2"})
    assert refused.status_code == 409


async def _tools_and_hosts(system: System) -> None:
    await system.chat("tools-and-hosts", "do it")
    assert (await system.resume("tools-and-hosts", "h9")).status_code == 409
    await system.resume("tools-and-hosts", "h1")
    await system.resume("tools-and-hosts", "h2")
    await system.chat("tools-and-hosts", "ask again")
    await system.chat("tools-and-hosts", "never mind")


async def _interrupted(system: System) -> None:
    async def streaming() -> None:
        await system.until(lambda: system.conn.fetchval("select true from live_deltas"))

    sent = asyncio.create_task(system.chat("interrupted", "one"))
    await streaming()
    await system.post("/sessions/interrupted/cancel")
    await sent
    sent = asyncio.create_task(system.chat("interrupted", "two"))
    await streaming()
    await system.chat("interrupted", "three")
    await sent
    await system.post("/sessions/interrupted/cancel", {"turn_id": "never"})
    await system.chat("interrupted", "four", turn_id="never")


async def _failed(system: System) -> None:
    turn = await system.chat("failed", "one")
    answer = await system.post(f"/sessions/failed/turns/{turn['turn_id']}/retry")
    assert answer.status_code == 200, answer.text
    await system.chat("failed", "two")
    assert (await system.post("/sessions/failed/repair")).status_code == 200


async def _rolled(system: System) -> None:
    await system.chat("rolled", "one")
    handle = system.workflow("rolled")
    before = (await handle.describe()).run_id
    await handle.signal("roll")

    async def over() -> bool:
        return (await handle.describe()).run_id != before

    await system.until(over)
    await system.resume("rolled", "h1")
    await system.resume("rolled", "h2")


async def _signalled(system: System) -> None:
    await system.chat("signalled", "one")
    handle = system.workflow("signalled")
    await handle.signal("host_result", ContinuationInput(tenant=system.tenant, tool_call_id="h1", tool_result=1))
    await handle.signal("host_result", ContinuationInput(tenant=system.tenant, tool_call_id="h1", tool_result=2))
    await handle.signal("cancel", CancelInput(tenant=system.tenant))
    await handle.signal("message", MessageInput(tenant=system.tenant, id="by-signal", content="two"))

    async def ended() -> bool:
        return bool(await system.conn.fetchval("select true from turns where user_message_id = 'by-signal' and state <> 'running'"))

    await system.until(ended)


STORIES: dict[str, tuple[Story, list[Behaviour]]] = {
    "turns": (_turns, [says("Hello.")]),
    "tools-and-hosts": (
        _tools_and_hosts,
        [
            calls(("c1", "add", {"a": 1, "b": 2}), ("c2", "broken", {}), text="Adding."),
            calls(("c3", "add", {"a": "x"}), ("c4", "wait_for", {"seconds": 0.1}), ("h0", "open_page", {"nonsense": 1})),
            BATCH,
            says("Done."),
            BATCH,
            says("All right."),
        ],
    ),
    "interrupted": (_interrupted, [hangs("Half"), hangs("Half again"), says("Whole.")]),
    "failed": (_failed, [raises(ModelHTTPError(401, "m"), "Oh"), raises(ModelHTTPError(400, "m")), says("Fine.")]),
    "rolled": (_rolled, [BATCH, says("Rolled.")]),
    "signalled": (_signalled, [BATCH, says("Signalled.")]),
}
