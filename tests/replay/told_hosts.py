"""Stories of hosts: their actions, their cards, their signals, and what nobody does in time."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from tests.models import calls, says, waits
from tests.replay.telling import Story, Told, asked

BATCH = calls(("h1", "open_page", {"url": "a"}), ("h2", "ask_user", {"question": "b"}), text="Two things.")
GO_ON = asyncio.Event()
NOTE = [{"kind": "component", "type": "note", "data": {"a": 1}}]
SOON = {
    "name": "soon",
    "description": "Is not done.",
    "parameters": {"type": "object"},
    "remind_seconds": 0.2,
    "deadline_seconds": 1.2,
}


async def _asks_later() -> AsyncIterator[Any]:
    for said in (waits(GO_ON, "One", " more."), calls(("h3", "open_page", {"url": "c"}))):
        async for piece in said():
            yield piece


async def _tools_and_hosts(system: Told) -> None:
    await system.chat("tools-and-hosts", "do it")
    assert (await system.resume("tools-and-hosts", "h9")).status_code == 409
    await system.resume("tools-and-hosts", "h1")
    await system.resume("tools-and-hosts", "h2", tool_outcome="failed")
    await system.chat("tools-and-hosts", "ask again")
    await system.chat("tools-and-hosts", "never mind")


async def _carded(system: Told) -> None:
    path = "/sessions/carded/messages"
    card = {"id": "k1", "content": "A card.", "segments": NOTE, "subject": "order-7"}
    for _ in range(2):
        assert (await system.post(path, card)).status_code == 201
    assert (await system.post(path, {"segments": NOTE, "subject": "order-8"})).status_code == 409
    await system.chat("carded", "what is it?")
    assert (await system.post(path, {"segments": NOTE})).json()["code"] == "busy"
    for change in ({"title": "A title"}, {"owner_id": "alice"}, {"active_leaf_id": "k1"}):
        assert (await system.http.patch("/api/sessions/carded", json=change)).status_code == 200
    repaired = await system.post("/sessions/carded/repair", {}, headers={"idempotency-key": "k"})
    assert repaired.json()["repaired_calls"] == []
    await system.chat("carded", "go on")


async def _timed(system: Told) -> None:
    await system.chat("timed", "do it soon", host_context={"version": 1, "actions": [SOON]})
    await system.recorded("host_action.reminder")
    await system.idle("timed", 2)


async def _signalled(system: Told) -> None:
    await system.chat("signalled", "one")
    handle = system.workflow("signalled")
    await handle.signal("steer", asked(system, id="g1", content="Be brief."))
    await system.until(lambda: system.conn.fetchval("select true from steering"))
    await system.at_rest("signalled")
    await handle.signal("continuation", asked(system, tool_call_id="h1", tool_result=1))
    await system.idle("signalled", 2)
    await handle.signal("host_result", asked(system, tool_call_id="h1", tool_result=2))
    await system.recorded("input.refused")
    await system.at_rest("signalled")
    await handle.signal("steer", {"no": "steering"})
    await system.recorded("input.refused", 2)
    await system.at_rest("signalled")
    await handle.signal("cancel", asked(system))
    await system.at_rest("signalled")
    await handle.signal("message", asked(system, id="by-signal", content="two"))
    await system.idle("signalled", 3)
    sent = await system.running("signalled", "three")
    await handle.signal("host_result", asked(system, tool_call_id="h3", tool_result=3))
    await system.until(lambda: _waits(system))
    GO_ON.set()
    await sent
    await system.idle("signalled", 5)


async def _waits(system: Told) -> bool:
    """True once the workflow has taken note of the last signal."""
    events = (await system.workflow("signalled").fetch_history()).events
    last = max(event.event_id for event in events if event.HasField("workflow_execution_signaled_event_attributes"))
    return any(event.event_id > last and event.HasField("workflow_task_completed_event_attributes") for event in events)


STORIES = {
    "tools-and-hosts": Story(
        "R105 R117 R122 R124 L17 L19",
        [_tools_and_hosts],
        [
            calls(("c1", "add", {"a": 1, "b": 2}), ("c2", "broken", {}), text="Adding."),
            calls(("c3", "add", {"a": "x"}), ("c4", "wait_for", {"seconds": 0.1}), ("h0", "open_page", {"nonsense": 1})),
            BATCH,
            says("Done."),
            BATCH,
            says("All right."),
        ],
    ),
    "carded": Story("R169 R172 R173 R41 S56", [_carded], [calls(("h1", "open_page", {"url": "u"})), says("Here.")]),
    "timed": Story("S58", [_timed], [calls(("s1", "soon", {})), says("Too late.")]),
    "signalled": Story(
        "R114 R120 L12",
        [_signalled],
        [BATCH, says("Signalled."), _asks_later, says("So be it.")],
    ),
}
