"""What the host shows: told once, used again, and said to be old when it is."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, UserPromptPart

from tests.models import calls, raises, says, script
from tests.system import System, running_system
from workflows.contracts.inputs import MessageInput

TURN_PAGE = {"name": "turn_page", "description": "Turns it", "parameters": {"type": "object", "properties": {}}}
PAGE = {"version": 1, "view": {"name": "reader", "data": {"page": 7}}, "actions": [TURN_PAGE]}
OTHER = {"version": 1, "view": {"name": "reader", "data": {"page": 8}}}


def prompts(messages: list[ModelMessage]) -> list[str]:
    return [str(part.content) for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


async def made_older(system: System, **age: float) -> None:
    await system.conn.execute("update sessions set host_context_at = host_context_at - $1::interval", timedelta(**age))


async def test_r28_the_last_host_context_is_used_again_also_after_a_restart(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hi"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", "one", host_context=PAGE)
        await system.chat("s1", "two")
    async with running_system(database_url, temporal_address, scripted, like=system) as system:
        await system.chat("s1", "three")
        for request, tools in zip(scripted.requests, scripted.tools, strict=True):
            assert '"page": 7' in prompts(request)[-1] and "old and may no longer be so" not in prompts(request)[-1]
            assert "turn_page" in tools
        await system.chat("s1", "four", host_context={"version": 1})
        await system.chat("s1", "five")
        assert prompts(scripted.requests[-1])[-2:] == ["four", "five"]
        assert "turn_page" not in scripted.tools[-1]


@pytest.mark.parametrize(
    ("age", "words"),
    [
        ({"minutes": 58}, None),
        ({"hours": 3, "minutes": 5}, "3 hours and 5 minutes"),
        ({"days": 2, "hours": 1, "minutes": 30}, "2 days and 1 hour"),
    ],
)
async def test_a_host_context_that_is_old_is_said_to_be(
    database_url: str, temporal_address: str, age: dict[str, float], words: str | None
) -> None:
    scripted = script(says("hi"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", "one", host_context=PAGE)
        await made_older(system, **age)
        await system.chat("s1", "two")
        last = prompts(scripted.requests[-1])[-1]
        assert '"page": 7' in last
        assert (f"It is {words} old and may no longer be so." in last) if words else ("no longer" not in last)


async def test_the_host_may_say_when_it_looked(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hi"))
    captured = (datetime.now(UTC) - timedelta(hours=2)).isoformat()
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", "one", host_context={"version": 1, "actions": [TURN_PAGE], "captured_at": captured})
        assert "no longer" not in prompts(scripted.requests[-1])[-1]
        await system.chat("s1", "two")
        assert "It is 2 hours old" in prompts(scripted.requests[-1])[-1]


async def test_r129_a_result_may_say_what_the_host_shows_now(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "a"}), ("c2", "open_page", {"url": "b"})), says("both"), says("hi"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", "go", host_context=PAGE)
        await system.resume("s1", "c1", host_context=OTHER)
        assert (await system.resume("s1", "c2")).json()["content"] == "both"
        assert [part.content for part in scripted.results(1)] == ["ok", "ok"]
        assert '"page": 8' in prompts(scripted.requests[1][-1:])[-1] and '"page": 7' in prompts(scripted.requests[1])[0]
        await system.chat("s1", "again")
        assert scripted.requests[2][: len(scripted.requests[1])] == scripted.requests[1]
        assert '"page": 8' in prompts(scripted.requests[2])[-1]


async def test_r127_a_retry_still_knows_what_the_host_showed(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "a"})), raises(ModelHTTPError(401, "m")), says("open"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", "go")
        failed = (await system.resume("s1", "c1", host_context=OTHER)).json()
        again = await system.post(f"/sessions/s1/turns/{failed['turn_id']}/retry")
        assert again.json()["content"] == "open"
        assert scripted.requests[2] == scripted.requests[1]
        assert '"page": 8' in prompts(scripted.requests[2])[-1]


async def test_a_server_tools_result_repeats_no_host_context(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "add", {"a": 1, "b": 2})), says("three"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", "go", host_context=PAGE)
        assert len(prompts(scripted.requests[1])) == 1


async def test_signals_may_say_nonsense(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hi"))
    context: dict[str, Any] = {"captured_at": "yesterday", "actions": [{"name": "a b"}], "attachments": 5}
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        message = MessageInput(tenant=system.tenant, id="m2", content="x", host_context=context)
        await system.workflow("s1").signal("message", message)
        await system.until(lambda: len(scripted.requests) == 2)
        assert (await system.chat("s1"))["content"] == "hi"
