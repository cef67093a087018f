"""The main job through the HTTP API, with everything real but the model."""

import asyncio

from tests.models import calls, says, script, waits
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


async def test_s45_what_is_pending_is_sent_by_the_commit_that_makes_it_so(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "https://example.org"}), text="Opening."))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        commits = await system.conn.fetch(
            """
            select xmin::text as commit from events where type in ('host_action.pending', 'turn.final', 'turn.completed')
            union all select xmin::text from host_batches
            union all select xmin::text from calls
            union all select xmin::text from turns
            union all select xmin::text from messages where role = 'assistant'
            """
        )
        assert len(commits) == 7
        assert len({row["commit"] for row in commits}) == 1


async def test_r62_an_accepted_message_that_the_rows_refuse_is_answered(database_url: str, temporal_address: str) -> None:
    go_on = asyncio.Event()
    scripted = script(says("hello"), waits(go_on, "one", "two"))
    async with running_system(database_url, temporal_address, scripted) as system:
        first = await system.chat("s1")
        await system.submit("s1", "hold the line")
        await system.until(lambda: len(scripted.requests) == 2)
        await system.conn.execute("insert into branches select session_uid, 9, 9, array[0, 9], array[1, 99] from sessions")
        await system.conn.execute(
            """
            insert into messages (session_uid, id, parent_id, role, content, branch, depth, count_all, count_user, count_assistant, change,
              created_at, updated_at, said_at, settled)
            select session_uid, 'x9', $1, 'user', '', 9, 2, 3, 2, 1, 9, now(), now(), now(), true from sessions
            """,
            first["message_id"],
        )
        waiting = asyncio.create_task(
            system.post("/chat", {"session_id": "s1", "content": "under it", "parent_id": "x9", "when_busy": "enqueue"})
        )
        await system.accepted("s1", 3)
        await system.conn.execute("delete from messages where id = 'x9'")
        go_on.set()
        answer = await waiting
        assert (answer.status_code, answer.json()["code"]) == (409, "unknown_parent")
        assert (await system.chat("s1", "go on"))["error"] is None
