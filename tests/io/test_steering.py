"""Steering, with everything real but the model."""

import asyncio
from typing import Any

from pydantic_ai.messages import ModelMessage, UserPromptPart

from tests.models import calls, hangs, says, script, waits
from tests.replay.telling import Between, until_set
from tests.system import System, running_system
from workflows.contracts.inputs import SteerInput


async def steer(system: System, session: str, content: str, **fields: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await system.workflow(session).execute_update(
        "steer", SteerInput(tenant=system.tenant, content=content, **fields), result_type=dict
    )
    return answer


async def statuses(system: System) -> dict[str, str]:
    rows = await system.conn.fetch("select content, status from steering order by number")
    return {row["content"]: row["status"] for row in rows}


def prompts(messages: list[ModelMessage]) -> list[str]:
    return [str(part.content) for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


async def test_r143_steering_during_a_server_tool_reaches_the_next_step_once(database_url: str, temporal_address: str) -> None:
    scripted, between, go_on = script(calls(("c1", "wait_for", {"seconds": 0})), says("done")), Between(), asyncio.Event()
    between.after = until_set(go_on, "run_tool")
    async with running_system(database_url, temporal_address, scripted, interceptors=[between]) as system:
        turn = await system.submit("s1")
        await system.until(lambda: system.conn.fetchval("select count(*) from calls"))
        assert (await steer(system, "s1", "be brief"))["delivery"] == "queued"
        go_on.set()
        await system.idle("s1", 1)
        assert prompts(scripted.requests[1]) == ["hello", "be brief"]
        assert [part.content for part in scripted.results()] == ["waited"]
        delivered = [event for event in await system.events("s1") if event["type"] == "steering.delivered"]
        assert [event["message_id"] for event in delivered] == [turn["message_id"]]
        assert await statuses(system) == {"be brief": "delivered"}
        assert len((await system.get("/sessions/s1/tree"))["messages"]) == 2
        await system.chat("s1", "more")
        assert prompts(scripted.requests[2]) == ["hello", "be brief", "more"]


async def test_r143_steering_before_the_last_step_commits_causes_one_more_step(database_url: str, temporal_address: str) -> None:
    go_on = asyncio.Event()
    scripted = script(waits(go_on, "one", "two"), says("three"))
    async with running_system(database_url, temporal_address, scripted) as system:
        answer = asyncio.create_task(system.chat("s1"))
        await system.until(lambda: scripted.requests)
        assert (await steer(system, "s1", "be brief"))["delivery"] == "queued"
        go_on.set()
        assert (await answer)["content"] == "onetwothree"
        assert len(scripted.requests) == 2


async def test_r148_two_on_an_idle_session_share_one_turn_that_extends_the_last_message(database_url: str, temporal_address: str) -> None:
    accepted = asyncio.Event()
    scripted = script(says("hello"), waits(accepted, " and", " on"), says("."))
    async with running_system(database_url, temporal_address, scripted) as system:
        first = await system.chat("s1")
        receipts = await asyncio.gather(steer(system, "s1", "a"), steer(system, "s1", "b"))
        accepted.set()
        await system.idle("s1", 2)
        assert "promoted" in {receipt["delivery"] for receipt in receipts}
        assert sorted(prompts(scripted.requests[-1])[1:]) == ["a", "b"], "both in one step, or one in the next"
        assert set((await statuses(system)).values()) == {"delivered"}
        rows = [row for row in await system.messages("s1") if row["role"] == "assistant"]
        said = "hello and on" if len(scripted.requests) == 2 else "hello and on."
        assert [(row["id"], row["content"]) for row in rows] == [(first["message_id"], said)]


async def test_r145_steering_under_a_user_message_makes_an_assistant_message(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hello"), says("steered"))
    async with running_system(database_url, temporal_address, scripted) as system:
        first = await system.chat("s1", id="m1")
        await system.conn.execute("update sessions set active_leaf_id = 'm1'")
        receipt = await steer(system, "s1", "differently")
        await system.idle("s1", 2)
        tree = (await system.get("/sessions/s1/tree"))["messages"]
        made = [message for message in tree if message["parent_id"] == "m1" and message["id"] != first["message_id"]]
        assert [message["content"] for message in made] == ["steered"]
        assert receipt["delivery"] == "promoted"
        assert prompts(scripted.requests[1]) == ["hello", "differently"]


async def test_r147_steering_whose_turn_is_cancelled_waits_for_the_next_message(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hello"), hangs("par"), says("done"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        await steer(system, "s1", "be brief")
        await system.until(lambda: len(scripted.requests) == 2)
        await system.post("/sessions/s1/cancel")
        await system.idle("s1", 2)
        assert await statuses(system) == {"be brief": "pending"}
        await system.chat("s1", "go on")
        assert prompts(scripted.requests[2])[-2:] == ["go on", "be brief"]
        assert await statuses(system) == {"be brief": "delivered"}


async def test_r151_steering_for_another_profile_causes_no_step(database_url: str, temporal_address: str) -> None:
    go_on = asyncio.Event()
    scripted = script(waits(go_on, "one", "two"), says("three"))
    async with running_system(database_url, temporal_address, scripted) as system:
        answer = asyncio.create_task(system.chat("s1"))
        await system.until(lambda: scripted.requests)
        receipt = await steer(system, "s1", "be brief", profile="other")
        assert receipt["delivery"] == "promoted"
        go_on.set()
        assert (await answer)["content"] == "onetwo"
        await system.idle("s1", 2)
        assert scripted.tools[1] == []
        assert await statuses(system) == {"be brief": "delivered"}


async def test_r150_r152_steering_behind_a_host_action_goes_with_its_result(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("done"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        assert (await steer(system, "s1", "be brief"))["delivery"] == "queued"
    async with running_system(database_url, temporal_address, scripted, like=system) as system:
        assert await statuses(system) == {"be brief": "pending"}
        assert (await system.resume("s1", "c1")).status_code == 200
        assert [part.content for part in scripted.results()] == ["ok"]
        assert prompts(scripted.requests[1]) == ["hello", "be brief"]
        assert await statuses(system) == {"be brief": "delivered"}
