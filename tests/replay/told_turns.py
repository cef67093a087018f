"""Stories of turns: messages, branches, interruptions, failures, steering, what sessions are bound to."""

import asyncio

from pydantic_ai.exceptions import ModelHTTPError

from tests.models import calls, hangs, raises, says, waits
from tests.replay.telling import Story, Told, asked

GO_ON = {name: asyncio.Event() for name in ("steered", "bound")}
RING = {"name": "ring", "description": "Rings.", "parameters": {"type": "object"}}


async def _turns(system: Told) -> None:
    first = await system.chat("turns", "one")
    await system.chat("turns", "two", id="m2")
    await system.chat("turns", "two", id="m2")
    await system.workflow("turns").signal("message", asked(system, id="m2", content="other"))
    await system.recorded("input.refused")
    await system.at_rest("turns")
    await system.chat("turns", "branch", parent_id=first["message_id"], expected_revision=4)
    refused = await system.post("/chat", {"session_id": "turns", "content": "other", "id": "m2"})
    assert refused.status_code == 409
    refused = await system.post("/chat", {"session_id": "turns", "content": "stale", "expected_revision": 1})
    assert refused.json()["code"] == "conversation_conflict"


async def _interrupted(system: Told) -> None:
    sent = await system.running("interrupted", "one")
    await system.post("/sessions/interrupted/cancel")
    await sent
    sent = await system.running("interrupted", "two")
    await system.chat("interrupted", "three")
    await sent
    await system.post("/sessions/interrupted/cancel", {"turn_id": "never"})
    await system.chat("interrupted", "four", turn_id="never")


async def _failed(system: Told) -> None:
    turn = await system.chat("failed", "one")
    answer = await system.post(f"/sessions/failed/turns/{turn['turn_id']}/retry")
    assert answer.status_code == 200, answer.text
    await system.at_rest("failed")
    await system.chat("failed", "two")
    assert (await system.post(f"/sessions/failed/turns/{turn['turn_id']}/retry")).json()["code"] == "not_retryable"
    assert (await system.post("/sessions/failed/repair")).status_code == 200


async def _limited(system: Told) -> None:
    turn = await system.chat("limited", "add", profile="thrifty")
    assert turn["error"]["type"] == "usage_limit"
    await system.chat("limited", "go on", profile="other")


async def _steered(system: Told) -> None:
    async def steer(content: str, **fields: str) -> int:
        words = {"session_id": "steered", "message_type": "steering", "content": content, **fields}
        return (await system.post("/chat?wait=false", words)).status_code

    sent = await system.running("steered", "one")
    assert await steer("Be brief.", id="g1") == 202
    GO_ON["steered"].set()
    await sent
    assert await steer("Say more.") == 202
    await system.idle("steered", 2)
    await system.chat("steered", "ask")
    assert await steer("While you wait.") == 202
    await system.at_rest("steered")
    await system.resume("steered", "h1")
    assert await steer("Be brief.", id="g1") == 202


async def _bound(system: Told) -> None:
    async def say(content: str, **fields: object) -> int:
        return (await system.post("/chat?wait=false", {"session_id": "bound", "content": content, **fields})).status_code

    context = {"version": 1, "view": {"name": "shop", "data": {"page": 1}}, "actions": [RING]}
    await system.chat("bound", "one", subject="order-7", host_context=context, config={"handover": "all"})
    assert (await system.post("/chat", {"session_id": "bound", "content": "x", "subject": "order-8"})).json()["code"] == "binding_conflict"
    await system.resume("bound", "r2", host_context={"version": 1, "view": {"name": "shop", "data": {"page": 2}}})
    await system.resume("bound", "r1", tool_outcome="denied")
    sent = await system.running("bound", "two")
    assert await say("not now", when_busy="reject") == 409
    assert await say("three", when_busy="enqueue") == 202
    GO_ON["bound"].set()
    await sent
    await system.idle("bound", 5)
    assert await say("four") == 202
    await system.streaming()
    await system.chat("bound", "instead of four", when_busy="replace")


STORIES = {
    "turns": Story("R58 R60 R61 R63 S39", [_turns], [says("Hello.")]),
    "interrupted": Story("R72 R91 R92 L21", [_interrupted], [hangs("Half"), hangs("Half again"), says("Whole.")]),
    "failed": Story("S42 R137 R139", [_failed], [raises(ModelHTTPError(401, "m"), "Oh"), raises(ModelHTTPError(400, "m")), says("Fine.")]),
    "limited": Story("R85", [_limited], [calls(("c1", "add", {"a": 1, "b": 2})), says("On.")]),
    "steered": Story(
        "R143 R148 R152 R154",
        [_steered],
        [
            waits(GO_ON["steered"], "Some", "thing."),
            says("With it."),
            says("More."),
            calls(("h1", "open_page", {"url": "u"})),
            says("With that."),
        ],
    ),
    "bound": Story(
        "R52 R129 R62",
        [_bound],
        [
            calls(("r1", "ring", {}), ("r2", "ring", {})),
            says("Rung."),
            waits(GO_ON["bound"], "Some", "thing."),
            says("Third."),
            hangs("Fourth"),
            says("Instead."),
        ],
    ),
}
