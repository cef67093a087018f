"""What a session is bound to, who may stop it, and that a host is asked for exactly one thing, exactly as it is shown."""

import hashlib
import json

from pydantic_ai.messages import ModelResponse, ToolCallPart

from tests.models import calls, hangs, says, script
from tests.system import running_system

BOB = {"x-test-principal": "bob"}
ALICE = {"x-test-principal": "alice"}


async def test_r56_a_binding_holds_after_a_restart_and_for_a_continuation_that_does_not_name_it(
    database_url: str, temporal_address: str
) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("done"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", subject="anna", profile="assistant")
    async with running_system(database_url, temporal_address, scripted, like=system) as system:
        assert (await system.resume("s1", "c1")).status_code == 200
        assert "open_page" in scripted.tools[1]
        shown = await system.get("/sessions/s1")
        assert (shown["profile"], shown["subject"]) == ("assistant", "anna")
        for other in ({"subject": "ben"}, {"profile": "other"}):
            refused = await system.post("/chat", {"session_id": "s1", "content": "x", **other})
            assert (refused.status_code, refused.json()["code"]) == (409, "binding_conflict")


async def test_r102_another_principal_cannot_cancel(database_url: str, temporal_address: str) -> None:
    scripted = script(hangs("par"))
    async with running_system(database_url, temporal_address, scripted) as system:
        begun = await system.post("/chat?wait=false", {"session_id": "s1", "content": "x"}, headers=ALICE)
        assert begun.status_code == 202
        await system.until(lambda: scripted.requests)
        foreign = await system.post("/sessions/s1/cancel", headers=BOB)
        absent = await system.post("/sessions/s9/cancel", headers=BOB)
        assert (foreign.status_code, foreign.content) == (404, absent.content)
        assert (await system.post("/sessions/s1/cancel", headers=ALICE)).json()["cancel_requested"] is True


async def test_l19_a_follow_up_supersedes_and_never_makes_a_second_pending_action(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), calls(("c2", "ask_user", {"question": "q"})), says("done"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        await system.chat("s1", "something else")
        waiting = (await system.get("/host-actions"))["host_actions"]
        assert [action["tool_call_id"] for action in waiting] == ["c2"]
        assert await system.conn.fetchval("select count(*) from host_batches where state = 'open'") == 1
        old = await system.resume("s1", "c1")
        assert (old.status_code, old.json()["recorded_status"]) == (409, "superseded")
        assert (await system.resume("s1", "c2")).json()["content"] == "done"


async def test_l16_what_is_shown_is_what_the_model_asked_for_everywhere(database_url: str, temporal_address: str) -> None:
    arguments = {
        "url": "https://example.org/?q=ä&n=1",
    }
    scripted = script(calls(("c1", "open_page", arguments)), says("done"))
    async with running_system(database_url, temporal_address, scripted) as system:
        asked = await system.chat("s1")
    async with running_system(database_url, temporal_address, scripted, like=system) as system:
        session = await system.get("/sessions/s1")
        listed = (await system.get("/host-actions"))["host_actions"][0]
        announced = next(event for event in await system.events("s1") if event["type"] == "tool.call")
        shown = (asked["pending_tool_call"], session["pending_action"], listed, announced)
        assert [one["arguments"] for one in shown] == [arguments] * 4
        row = await system.conn.fetchrow("select arguments, arguments_digest from calls")
        assert row is not None and hashlib.sha256(row["arguments"].encode()).hexdigest() == row["arguments_digest"]
        await system.resume("s1", "c1")
        response = next(message for message in scripted.requests[1] if isinstance(message, ModelResponse))
        part = next(part for part in response.parts if isinstance(part, ToolCallPart))
        assert json.loads(str(part.args)) == arguments == json.loads(row["arguments"])
