"""Stories of long lives: rollovers, cold workers, results that are not heard of, ends, and payloads that only keys and stores can open."""

import asyncio
from typing import Any

from temporalio import activity

from cli.erasing import start_erasure
from tests.everything import rolled
from tests.io.keys import keys
from tests.models import calls, hangs, says, waits
from tests.replay.telling import Between, Story, Told, asked, losing, to_its_end, until_set
from tests.replay.told_hosts import BATCH
from workflows.contracts.naming import principal_erasure_workflow_id

GO_ON, HEARD = asyncio.Event(), asyncio.Event()
KEYS = keys("corpus")
INLINE = 1024


async def _rolled(system: Told) -> None:
    """Half a batch, steering behind it, a cancel of a turn to come, a refusal and a keyed answer travel; then a turn, and what waits behind it."""
    handle = system.workflow("rolled")
    await system.chat("rolled", "one", id="m1")
    await system.resume("rolled", "h1")
    await system.post("/chat?wait=false", {"session_id": "rolled", "message_type": "steering", "content": "Be brief."})
    await system.at_rest("rolled")
    await system.post("/sessions/rolled/cancel", {"turn_id": "never"}, headers={"idempotency-key": "k"})
    await handle.signal("host_result", asked(system, tool_call_id="h1"))
    await system.recorded("input.refused")
    await system.at_rest("rolled")
    await rolled(system, "rolled")
    await system.resume("rolled", "h2")
    await system.chat("rolled", "two", turn_id="never")
    await handle.signal("message", asked(system, id="m1", content="one"))
    await rolled(system, "rolled")
    sent = await system.running("rolled", "three")
    await system.submit("rolled", "four", when_busy="enqueue")
    await handle.signal("roll")
    GO_ON.set()
    await sent
    await system.idle("rolled", 6)


async def _cold_begins(system: Told) -> None:
    """The worker is stopped with a step's result on its way; an input comes while nobody is there."""
    await system.chat("cold", "one")

    async def after(name: str, done: Any) -> Any:
        if name == "run_step":
            HEARD.set()
            await activity.wait_for_worker_shutdown()
            await system.workflow("cold").signal("message", asked(system, id="m3", content="three"))
        return done

    COLD.after = after
    await system.submit("cold", "two")
    await HEARD.wait()


async def _cold_goes_on(system: Told) -> None:
    """A worker that has never seen the session begins with its result and the input at once; then a cancel crosses a step's end."""
    COLD.after = Between().after
    await system.idle("cold", 3)
    await system.submit("cold", "four")
    await system.post("/sessions/cold/cancel")
    await system.idle("cold", 4)


async def _unheard(system: Told) -> None:
    """A result that does not decode, one that comes after everybody has read what it says, and one that never comes."""

    async def nonsense(name: str, done: Any) -> Any:
        return {"state": 1} if name == "run_step" else done

    UNHEARD.after = nonsense
    await system.chat("unheard", "one")
    go_on = asyncio.Event()
    UNHEARD.after = until_set(go_on, "run_step")
    await system.post("/chat", {"session_id": "unheard", "content": "two"})
    inputs = [
        asyncio.create_task(system.post("/sessions/unheard/cancel")),
        asyncio.create_task(system.post("/chat?wait=false", {"session_id": "unheard", "content": "three", "when_busy": "reject"})),
    ]
    assert (await inputs[0]).json()["cancel_requested"] is False
    await asyncio.wait(inputs[1:], timeout=0.5)
    go_on.set()
    assert (await inputs[1]).status_code == 202
    await system.idle("unheard", 3)

    UNHEARD.after = losing(lambda name, done: name == "run_tool")
    await system.chat("unheard", "four")


async def _unborn(system: Told) -> None:
    """A first input that is refused leaves no session, and its workflow ends."""
    answer = await system.post("/chat", {"session_id": "unborn", "content": "one", "parent_id": "nowhere"})
    assert answer.json()["code"] == "unknown_parent"
    await system.workflow("unborn").result()


async def _nameless(system: Told) -> None:
    """A first input whose sender has a name that no row could hold is refused."""
    await (await system.begun_by_signal("nameless", asked(system, content="one", principal="a\0b"))).result()


async def _expired(system: Told) -> None:
    await system.chat("expired", "one")
    STORIES["expired"].kept.append(await to_its_end(system.workflow("expired")))
    await _erased_rows(system)


async def _closed(system: Told) -> None:
    sent = await system.running("closed", "one")
    following = asyncio.create_task(to_its_end(system.workflow("closed")))
    assert (await system.http.delete("/api/sessions/closed")).status_code == 202
    STORIES["closed"].kept.append(await following)
    sent.cancel()
    await _erased_rows(system)


async def _forgotten(system: Told) -> None:
    alice = {"x-test-principal": "alice"}
    for session in ("forgotten", "forgotten-too"):
        assert (await system.post("/chat", {"session_id": session, "content": "hi"}, headers=alice)).status_code == 200
    await start_erasure(system.kit.db, system.temporal, system.settings.task_queue, system.tenant, "alice")
    erasure = system.temporal.get_workflow_handle(principal_erasure_workflow_id(system.tenant, "alice"))
    await erasure.result()


async def _erased_rows(system: Told) -> None:
    """Waits until the erasure's workflow is done with the histories too."""
    await system.until(lambda: system.conn.fetchval("select true from erasures where verified_at is not null"), 60.0)


async def _sealed(system: Told) -> None:
    """What is encrypted, and what is too large as well, also in the state that travels."""
    await system.chat("sealed", "x" * 2 * INLINE)
    await rolled(system, "sealed")
    await system.resume("sealed", "h1", "y" * 2 * INLINE)
    await system.resume("sealed", "h2")
    sent = await system.running("sealed", "stop")
    await system.post("/sessions/sealed/cancel")
    await sent


COLD, UNHEARD = Between(), Between()
STORIES = {
    "rolled": Story(
        "L6 L7 L9 R124 R152 R92 S56",
        [_rolled],
        [BATCH, says("Rolled."), waits(GO_ON, "Some", "thing."), says("Fourth.")],
    ),
    "cold": Story("L10 S40", [_cold_begins, _cold_goes_on], [says("Hello.")], {"worker_shutdown_seconds": 5.0}, COLD),
    "unheard": Story(
        "L12 R76",
        [_unheard],
        [*[says("Hello.")] * 3, calls(("c1", "add", {"a": 1, "b": 2})), says("Unknown.")],
        between=UNHEARD,
    ),
    "unborn": Story("R62", [_unborn], [says("Hello.")]),
    "nameless": Story("L12", [_nameless], []),
    "expired": Story("R176 R178", [_expired], [says("Hello.")], {"session_ttl_hours": 0.0004}),
    "closed": Story("S20", [_closed], [hangs("Half")]),
    "forgotten": Story("S78", [_forgotten], [says("Hello.")]),
}
SEALED = {
    "sealed": Story(
        "L6 R91",
        [_sealed],
        [BATCH, says("Opened."), hangs("Half")],
        {"codec": KEYS, "temporal": {"inline_limit_bytes": INLINE}},
    ),
}
