"""What is left of an erased session, with everything real but the model: nothing."""

import asyncio
import base64
import dataclasses
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from pydantic_ai.exceptions import ModelHTTPError

from activities.db.pool import Database
from activities.db.queries import load_queries
from activities.db.session_tx import SessionGone
from activities.erasures import Erasures
from activities.step_run import StepRun
from cli.services.temporal import TemporalServer
from tests.models import calls, hangs, raises, says, script
from tests.remains import in_tables, remains
from tests.system import Answer, System, running_system
from workflows.contracts.erasures import EraseRows
from workflows.contracts.errors import ServiceUnavailable
from workflows.contracts.inputs import CloseInput, RowsSaid
from workflows.contracts.naming import session_workflow_id
from workflows.contracts.steps import Birth, NewMessage, Opening, RunStep
from workflows.model.session import SessionRef
from workflows.model.turn import TurnRef

WORD, OTHER = "hippopotamus", "rhinoceroses"
LARGE = WORD + "x" * 200_000
HOLDING = {
    "sessions", "messages", "segments", "model_messages", "turns", "steering", "calls", "events", "live_deltas", "idempotency_keys",
    "payloads",
}  # fmt: skip
"""Tables that have content."""
ERASED_SECONDS = 200.0
"""How long the end of an erasure may be in coming: it waits for what may still be on its way."""
OUTLIVING = {"audit", "erasures", "usage_ledger"}
"""Tables with a session's uid whose rows stay: ids and numbers."""


def everything() -> list[Any]:
    """A model that takes part in everything."""
    return [
        calls(("c1", "add", {"a": 1, "b": 2}), ("c2", "broken", {}), text=f"Adding {WORD}."),
        calls(("h1", "open_page", {"url": WORD})),
        says(f"Seen {WORD}.", thinking=WORD),
        raises(ModelHTTPError(400, "m", {"message": WORD}), WORD),
        hangs(f"The {WORD} is "),
    ]


async def live_with(system: System, session: str, word: str) -> None:
    """Uses everything that a session has, and stops in the middle of a turn. The model is `everything`."""
    context = {
        "version": 1,
        "view": {"name": word, "data": {"page": word}},
        "actions": [{"name": "turn", "description": word, "parameters": {}}],
    }
    file = {"name": f"{word}.txt", "media_type": "text/plain", "data": base64.b64encode(word.encode() * 3).decode()}
    await system.chat(session, f"about {word}", subject=word, attachments=[file], host_context=context, config={"temperature": 0.5})
    assert (await system.resume(session, "h1", {"seen": LARGE})).status_code == 200
    card = {"segments": [{"kind": "component", "type": "chart", "data": {"title": word}}], "content": word}
    assert (await system.post(f"/sessions/{session}/messages", card)).status_code == 201
    await system.workflow(session).signal("roll")
    titled = await system.http.patch(f"/api/sessions/{session}", json={"title": word}, headers={"idempotency-key": f"k-{session}"})
    assert titled.status_code == 200
    assert (await system.chat(session, word))["error"]["type"] == "provider_client_error"
    await system.submit(session, f"and {word}?")
    await system.until(lambda: _streams(system, session))
    steered = await system.post("/chat", {"session_id": session, "content": word, "message_type": "steering"})
    assert steered.status_code == 202


async def _streams(system: System, session: str) -> Any:
    return await system.conn.fetchval("select true from live_deltas join sessions using (session_uid) where session_id = $1", session)


async def deleted(system: System, session: str) -> str:
    answer = await system.http.delete(f"/api/sessions/{session}")
    assert answer.status_code == 202, answer.text
    found: str = answer.json()["erasure_id"]
    return found


async def done(system: System, erasure_id: str) -> Answer | None:
    found: Answer = await system.get(f"/erasures/{erasure_id}")
    assert found["verified"] == (found["status"] == "done") == (found["at"] is not None)
    return found if found["verified"] else None


async def test_s20_s78_nothing_is_left_of_a_session_that_used_everything(database_url: str, own_temporal: TemporalServer) -> None:
    scripted = script(says(OTHER), *everything())
    async with running_system(database_url, own_temporal.address, scripted, apis=2) as system:
        await system.chat("stays", f"keep {OTHER}")
        await live_with(system, "goes", WORD)
        workflow_id = session_workflow_id(system.tenant, "goes")
        await system.listed(workflow_id, session_workflow_id(system.tenant, "stays"))
        assert await remains(WORD, system.conn, system.temporal) >= HOLDING | {workflow_id}
        kept = await remains(OTHER, system.conn, system.temporal)
        erasure_id = await deleted(system, "goes")
        assert await in_tables(WORD, system.conn) <= {"payloads"}, "content is unreadable from the answer on"
        receipt = await system.until(lambda: done(system, erasure_id), ERASED_SECONDS)
        assert await remains(WORD, system.conn, system.temporal) == set()
        assert await remains(OTHER, system.conn, system.temporal) == kept
        assert (receipt["session_ids"], receipt["workflow_runs"]) == (["goes"], 2)
        assert receipt["payloads"] >= 1 and "model providers" in receipt["not_covered"]
        assert {table for table, rows in receipt["rows"].items() if rows} >= HOLDING - {"payloads", "live_deltas"}
        (act,) = await system.conn.fetch("select principal, action, tenant, session_uid, facts from audit")
        assert (act["principal"], act["action"], act["tenant"], str(act["session_uid"])) == ("local", "erase", system.tenant, erasure_id)
        assert [row["session_id"] for row in (await system.get("/sessions", api=1))["sessions"]] == ["stays"]


async def test_s20_what_was_forgotten_is_found_and_keeps_the_receipt_back(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says(WORD))) as system:
        await system.chat("s1", WORD)
        await system.conn.execute("alter table segments drop constraint segments_session_uid_message_id_fkey")
        erasure_id = await deleted(system, "s1")
        assert await in_tables(WORD, system.conn) == {"segments"}
        erasure = system.temporal.get_workflow_handle(f"erasure/{erasure_id}")
        await system.until(lambda: _looked(erasure, times=2))
        assert await done(system, erasure_id) is None
        await system.conn.execute(
            "delete from segments; create table mine (body bytea); insert into mine values (convert_to($$a " + WORD + "$$, 'UTF8'))"
        )
        assert (await system.until(lambda: done(system, erasure_id)))["rows"]["segments"] == 1
        assert await in_tables(WORD, system.conn) == {"mine"}, "the look sees tables that nobody told it of"


async def _looked(erasure: Any, times: int) -> bool:
    events = (await erasure.fetch_history()).events
    looks = [event for event in events if event.activity_task_scheduled_event_attributes.activity_type.name == "verify_erasure"]
    return len(looks) >= times


async def test_s20_the_count_covers_every_table_of_a_session(conn: asyncpg.Connection) -> None:
    rows = await conn.fetch(
        "select table_name::text as name from information_schema.columns join information_schema.tables using (table_schema, table_name) "
        "where table_schema = 'public' and table_type = 'BASE TABLE' and column_name = 'session_uid'"
    )
    counted = {row["name"] async for row in load_queries().count_session_rows(conn, session_uid=UUID(int=0))}
    assert counted == {row["name"] for row in rows} - OUTLIVING


async def test_s20_counts_survive_an_answer_that_was_lost(database_url: str, temporal_address: str) -> None:
    """The activity's transaction commits, the worker dies before it says so: the next attempt finds no rows, and answers what went."""
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        uid = str(await system.conn.fetchval("select session_uid from sessions"))
        erasures = Erasures(system.kit, system.temporal)
        asked = EraseRows(session=SessionRef(tenant=system.tenant, session_id="s1", session_uid=uid), by="local", at="2026-01-01T00:00:00Z")
        first, again = await erasures._erase_rows(asked), await erasures._erase_rows(asked)
        assert first == again and first.rows["messages"] == 2
        assert await system.conn.fetchval("select count(*) from audit") == 1
        assert (await system.get(f"/erasures/{uid}"))["rows"] == first.rows


async def test_s20_the_rows_of_a_very_long_session_may_take_their_time(database_url: str, temporal_address: str) -> None:
    """Here it is a lock that makes it slow. Elsewhere a statement that takes so long counts as a Postgres that is lost."""
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        hasty = await Database.open(system.settings.database.model_copy(update={"timeout_seconds": 1.5}))
        erasures = Erasures(dataclasses.replace(system.kit, db=hasty), system.temporal)
        ref = SessionRef(
            tenant=system.tenant, session_id="s1", session_uid=str(await system.conn.fetchval("select session_uid from sessions"))
        )
        async with system.conn.transaction():
            await system.conn.execute("select from sessions for update")
            with pytest.raises(ServiceUnavailable):
                async with hasty.connection() as conn:
                    await load_queries().take_session(conn, session_uid=ref.session_uid)
            erasing = asyncio.create_task(erasures._erase_rows(EraseRows(session=ref, by="local", at="2026-01-01T00:00:00Z")))
            await asyncio.wait({erasing}, timeout=2.5)
            assert not erasing.done()
        assert (await erasing).rows["sessions"] == 1
        await hasty.close()


@pytest.mark.parametrize("large", [False, True])
async def test_s20_the_next_life_of_an_id_keeps_its_history_and_payloads(database_url: str, temporal_address: str, large: bool) -> None:
    asked = calls(("h1", "open_page", {"url": "u"}))
    async with running_system(database_url, temporal_address, script(asked, says("one"), asked, says("two"))) as system:
        body = "x" * (200_000 if large else 10)
        await system.chat("s1")
        await system.resume("s1", "h1", body)
        erasure_id = await deleted(system, "s1")
        await system.chat("s1", "anew")
        await system.resume("s1", "h1", body)
        receipt = await system.until(lambda: done(system, erasure_id), ERASED_SECONDS)
        assert (receipt["workflow_runs"], receipt["payloads"] > 0) == (1, large)
        history = await system.workflow("s1").fetch_history()
        assert len(history.events) > 10
        left = await system.conn.fetchval("select count(*) from payloads")
        assert (left > 0) == large
        await system.workflow("s1").signal("roll")
        assert (await system.chat("s1", "still there?"))["error"] is None
        assert len(await system.messages("s1")) == 4


async def test_a_delete_means_the_session_that_was_looked_at(database_url: str, temporal_address: str) -> None:
    """Two delete the same one and a third begins another under its id in between: that one stays."""
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        first = await deleted(system, "s1")
        await system.chat("s1", "anew")
        late = CloseInput(tenant=system.tenant, principal="local", roles=("admin",), rows=RowsSaid(session_uid=first))
        with pytest.raises(Exception, match="failed") as refused:
            await system.workflow("s1").execute_update("close", late)
        assert "another one lives under its id" in str(refused.value.__cause__)
        assert len(await system.messages("s1")) == 2


async def test_s20_a_first_turn_that_comes_late_does_not_bring_an_erased_session_back(database_url: str, temporal_address: str) -> None:
    """Its worker had seemed dead, and goes on when everything is gone."""
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        session = SessionRef(tenant=system.tenant, session_id="s1", session_uid=await deleted(system, "s1"))
        at = datetime.now(UTC).isoformat()
        opening = Opening(
            revision=1,
            birth=Birth(owner="local", profile="assistant", created_at=at),
            message=NewMessage(id="u1", parent_id=None, content=WORD, digest="d"),
        )
        turn = TurnRef(turn_id="t1", number=1, message_id="a1", user_message_id="u1", parent_id="u1", accepted_at=at)
        step = RunStep(session=session, turn=turn, step=1, revision=2, profile="assistant", opening=opening)
        with pytest.raises(SessionGone):
            await StepRun(system.kit, step).run()
        assert await system.conn.fetchval("select count(*) from sessions") == 0
