"""Cards, changes, deadlines, expiry and deletion, with everything real but the model."""

import asyncio
from typing import Any

from pydantic_ai.messages import UserPromptPart

from tests.models import calls, says, script
from tests.system import System, running_system
from workflows.contracts.inputs import AmendInput, CardInput, CloseInput, Input

SEGMENTS = [{"kind": "component", "type": "chart", "data": {"bars": [1, 2]}}]


async def update(system: System, session: str, name: str, asked: Input) -> dict[str, Any]:
    asked = asked.model_copy(update={"tenant": system.tenant, "roles": ("admin",)})
    answer: dict[str, Any] = await system.workflow(session).execute_update(name, asked, result_type=dict)
    return answer


async def test_r169_r170_r171_the_model_reads_a_cards_text_and_never_its_components(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hello"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        await update(system, "s1", "card", CardInput(id="k1", segments=SEGMENTS, content="Sales went up."))
        await update(system, "s1", "card", CardInput(id="k2", segments=SEGMENTS))
        await system.chat("s1", "why?")
        told = [str(part.content) for message in scripted.requests[1] for part in message.parts if isinstance(part, UserPromptPart)]
        assert told == ["hello", "Sales went up.", "why?"]
        rows = await system.messages("s1")
        assert [(row["role"], row["content"]) for row in rows] == [
            ("user", "hello"),
            ("assistant", "hello"),
            ("host", "Sales went up."),
            ("host", ""),
            ("user", "why?"),
            ("assistant", "hello"),
        ]
        assert rows[2]["segments"] == SEGMENTS
        recorded = [event["message"] for event in await system.events("s1") if event["type"] == "message.recorded"]
        assert next(message for message in recorded if message["id"] == "k1")["segments"] == SEGMENTS
        counts = await system.conn.fetchrow("select count_all, count_user, count_assistant from messages order by depth desc limit 1")
        assert counts is not None and tuple(counts) == (6, 2, 2)


async def test_amend_moves_the_leaf_and_supersedes_what_is_pending(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hello"), calls(("c1", "open_page", {"url": "u"})), says("again"))
    async with running_system(database_url, temporal_address, scripted) as system:
        first = await system.chat("s1")
        await system.chat("s1", "open it")
        moved = AmendInput(fields=("title", "active_leaf_id"), title="Orders", active_leaf_id=first["message_id"])
        await update(system, "s1", "amend", moved)
        session = await system.get("/sessions/s1")
        assert (session["active_leaf_id"], session["pending_action"]) == (first["message_id"], None)
        assert (await system.resume("s1", "c1")).json()["recorded_status"] == "superseded"
        await system.chat("s1", "from there")
        assert [row["content"] for row in await system.messages("s1")] == ["hello", "hello", "from there", "again"]
        assert (await system.get("/sessions"))["sessions"][0]["title"] == "Orders"


async def test_s58_a_deadline_passes_and_the_model_goes_on_knowing_that(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "quick", {})), says("I don't know."))
    action = {"name": "quick", "description": "Quick.", "parameters": {"type": "object"}, "deadline_seconds": 4.0, "remind_seconds": 0.5}
    context = {"version": 1, "actions": [action]}
    async with running_system(database_url, temporal_address, scripted) as system:
        asked = await system.chat("s1", host_context=context)
        assert (await system.get("/sessions/s1"))["pending_action"]["deadline_at"] is not None
        await system.until(lambda: len(scripted.requests) == 2)
        assert [part.outcome for part in scripted.results()] == ["interrupted"]

        async def ended() -> Any:
            types = [event["type"] for event in await system.events("s1")]
            return types if types.count("turn.completed") == 2 else None

        types = await system.until(ended)
        assert types.index("host_action.reminder") < types.index("host_action.expired")
        late = await system.resume("s1", "c1")
        assert (late.status_code, late.json()["recorded_status"]) == (409, "unknown")
        assert (await system.messages("s1"))[1]["id"] == asked["message_id"]


async def test_r178_an_expired_session_is_gone_and_its_id_is_free(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("new"))
    async with running_system(database_url, temporal_address, scripted, session_ttl_hours=4.0 / 3600) as system:
        await system.chat("s1")
        handle = system.workflow("s1")
        run = (await handle.describe()).run_id

        async def gone() -> bool:
            return (await system.http.get("/api/sessions/s1")).status_code == 404

        await system.until(gone)
        await system.until(lambda: _deleted(system, "s1", run))
        again = await system.chat("s1", "hello again")
        assert (again["turn_number"], again["content"]) == (1, "new")


async def test_r179_without_a_time_to_live_nothing_expires(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        assert (await system.get("/sessions"))["sessions"][0]["expires_at"] is None


async def test_s20_a_deleted_session_leaves_no_row_and_no_history(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1", "remember the word hippopotamus")
        run = (await system.workflow("s1").describe()).run_id
        await update(system, "s1", "close", CloseInput())
        assert (await system.http.get("/api/sessions/s1")).status_code == 404
        for table in ("sessions", "messages", "model_messages", "segments", "turns", "steps", "events", "calls"):
            assert await system.conn.fetchval(f"select count(*) from {table}") == 0
        audit = await system.conn.fetchrow("select principal, action, facts from audit")
        assert audit is not None and (audit["principal"], audit["action"]) == ("local", "erase")
        assert "hippopotamus" not in audit["facts"]
        await system.until(lambda: _deleted(system, "s1", run))


async def _deleted(system: System, session: str, run_id: str) -> bool:
    from temporalio.service import RPCError

    try:
        await system.temporal.get_workflow_handle(system.workflow(session).id, run_id=run_id).describe()
    except RPCError:
        return True
    await asyncio.sleep(0.1)
    return False
