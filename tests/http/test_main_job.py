"""The main job through the HTTP API, with everything real but the model."""

from tests.models import calls, says, script
from tests.system import running_system


async def test_r105_r107_a_host_action_from_question_to_answer(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "https://example.org"}), text="Opening."), says("It is open."))
    async with running_system(database_url, temporal_address, scripted) as system:
        asked = await system.chat("s1", "open example.org")
        assert asked["pending_tool_call"]["call_id"] == "c1"
        assert asked["pending_tool_call"]["arguments"] == {"url": "https://example.org"}
        session = await system.get("/sessions/s1")
        assert session["status"] == "waiting_host"
        assert session["pending_action"]["assistant_message_id"] == asked["message_id"]
        answer = await system.resume("s1", "c1", {"opened": True})
        assert answer.status_code == 200, answer.text
        done = answer.json()
        assert (done["content"], done["message_id"], done["pending_tool_call"]) == ("It is open.", asked["message_id"], None)
        assert [part.content for part in scripted.results()] == ['{"opened":true}']
        rows = await system.messages("s1")
        tool = rows[1]["segments"][1]["tools"][0]
        assert tool["output"] == {"opened": True}
        assert "status" not in tool and "outcome" not in tool
