"""How turns end that don't end well: what is kept, what readers are told, and that the next message works."""

from collections.abc import AsyncIterator

import httpx
import pytest
from pydantic_ai.exceptions import ModelAPIError, ModelConnectionError, ModelHTTPError

from tests.models import Behaviour, calls, hangs, raises, says, script
from tests.system import Answer, System, running_system


def kinds(events: list[Answer], turn_id: str) -> list[str]:
    return [event["type"] for event in events if event["turn_id"] == turn_id]


async def ended_with(system: System, session: str, turn: Answer, error: str) -> Answer:
    """The turn's answer, rows and events say the same about its end."""
    assert turn["error"]["type"] == error
    events = await system.events(session)
    assert kinds(events, turn["turn_id"])[-3:] == ["turn.final", "turn.error", "turn.completed"]
    assert kinds(events, turn["turn_id"]).count("turn.final") == 1
    row = next(row for row in await system.messages(session) if row["id"] == turn["message_id"])
    assert row["error"] == turn["error"]
    heard = (await system.heard(turn)).error
    assert heard and heard.type == error
    assert (await system.get(f"/sessions/{session}"))["status"] == "idle"
    return row


async def retry(system: System, session: str, turn: Answer) -> httpx.Response:
    return await system.post(f"/sessions/{session}/turns/{turn['turn_id']}/retry")


async def test_r84_a_turn_out_of_time_keeps_its_text_and_may_be_retried(database_url: str, temporal_address: str) -> None:
    scripted = script(hangs("Half of ", "it"), says("All of it."))
    async with running_system(database_url, temporal_address, scripted, turn_timeout_seconds=4) as system:
        turn = await system.chat("s1")
        assert (turn["content"], turn["error"]["retry_allowed"]) == ("Half of it", True)
        row = await ended_with(system, "s1", turn, "timeout")
        assert row["segments"] == [{"kind": "text", "text": "Half of it"}]
        again = await retry(system, "s1", turn)
        assert again.status_code == 200, again.text
        done = again.json()
        assert (done["content"], done["attempt"], done["error"], done["turn_number"]) == ("All of it.", 2, None, 1)
        assert [row["content"] for row in await system.messages("s1")] == ["hello", "All of it."]


async def test_r84_a_tool_does_not_outlive_the_turn_that_called_it(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "add", {"a": 1, "b": 2}), ("c2", "wait_for", {"seconds": 25}), text="Wait."), says("Well."))
    async with running_system(database_url, temporal_address, scripted, turn_timeout_seconds=5) as system:
        turn = await system.chat("s1")
        row = await ended_with(system, "s1", turn, "timeout")
        tools = row["segments"][1]["tools"]
        assert (tools[0]["output"], tools[0].get("status")) == (3, None)
        assert (tools[1]["outcome"], tools[1]["status"]) == ("interrupted", "cancelled")
        assert (await system.chat("s1", "and now?"))["content"] == "Well."
        assert [part.tool_call_id for message in scripted.requests[-1] for part in message.parts if part.part_kind == "tool-return"] == [
            "c1",
            "c2",
        ]


async def test_r85_s35_the_step_limit_ends_a_turn_with_what_it_had(database_url: str, temporal_address: str) -> None:
    step = iter(range(1, 9))

    async def one_more() -> AsyncIterator[object]:
        number = next(step)
        async for piece in calls((f"c{number}", "add", {"a": number, "b": number}), text=f"Step {number}. ")():
            yield piece

    scripted = script(one_more)
    async with running_system(database_url, temporal_address, scripted, max_steps=2) as system:
        turn = await system.chat("s1")
        assert (turn["content"], turn["error"]["retry_allowed"]) == ("Step 1. Step 2. ", False)
        row = await ended_with(system, "s1", turn, "usage_limit")
        assert [tool["output"] for segment in row["segments"] if segment["kind"] == "tool_group" for tool in segment["tools"]] == [2, 4]
        assert (await retry(system, "s1", turn)).json()["code"] == "not_retryable"
        scripted.then(says("On we go."))
        assert (await system.chat("s1", "go on"))["content"] == "On we go."
        assert len(scripted.requests) == 3


@pytest.mark.parametrize(
    ("error", "kind", "retryable", "requests"),
    [
        (ModelHTTPError(429, "m", {"message": "slow down"}), "rate_limit", True, 4),
        (ModelHTTPError(503, "m"), "provider_error", True, 4),
        (ModelConnectionError("m", "reset"), "connection_error", True, 4),
        (ModelHTTPError(401, "m"), "provider_auth", True, 1),
        (ModelHTTPError(400, "m"), "provider_client_error", False, 1),
        (ModelHTTPError(413, "m"), "context_overflow", False, 1),
        (ModelAPIError("m", "odd"), "provider_error", True, 4),
        (RuntimeError("nobody expected this"), "internal", True, 1),
    ],
)
async def test_r89_s42_a_provider_error_has_its_type_and_the_turn_goes_on_by_retry(
    database_url: str, temporal_address: str, error: Exception, kind: str, retryable: bool, requests: int
) -> None:
    scripted = script(raises(error, "So far"))
    async with running_system(database_url, temporal_address, scripted, model_retry_seconds=0.02) as system:
        turn = await system.chat("s1", id="m1")
        assert (turn["content"], turn["error"]["retry_allowed"]) == ("So far", retryable)
        await ended_with(system, "s1", turn, kind)
        assert len(scripted.requests) == requests
        assert kinds(await system.events("s1"), turn["turn_id"]).count("step.restarted") == requests - 1
        user, _ = await system.messages("s1")
        assert (user["id"], user["content"]) == ("m1", "hello")
        scripted.then(says("Better."))
        if retryable:
            assert (await retry(system, "s1", turn)).json()["content"] == "Better."
        else:
            assert (await retry(system, "s1", turn)).status_code == 409
            assert (await system.chat("s1", "again"))["content"] == "Better."
        assert "nobody expected" not in str(turn)


@pytest.mark.parametrize("how", ["retry", "message"])
async def test_r127_a_result_stays_recorded_when_the_step_after_it_fails_for_good(
    database_url: str, temporal_address: str, how: str
) -> None:
    failing: Behaviour = raises(ModelHTTPError(401, "m"))
    scripted = script(calls(("c1", "open_page", {"url": "u"})), failing, says("It is open."))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        failed = (await system.resume("s1", "c1", {"opened": True})).json()
        await ended_with(system, "s1", failed, "provider_auth")
        resent = await system.resume("s1", "c1", {"opened": False})
        assert (resent.status_code, resent.json()["code"], resent.json()["recorded_status"]) == (409, "already_recorded", "completed")
        done = (await retry(system, "s1", failed)).json() if how == "retry" else await system.chat("s1", "go on")
        assert done["content"] == "It is open."
        returned = [part for message in scripted.requests[-1] for part in message.parts if part.part_kind == "tool-return"]
        assert [(part.tool_call_id, part.content) for part in returned] == [("c1", '{"opened":true}')]
        assert (await system.messages("s1"))[1]["segments"][0]["tools"][0]["output"] == {"opened": True}
