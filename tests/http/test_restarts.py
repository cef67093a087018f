"""What outlives processes and workflows: everything comes back from rows and histories; rows that others wrote are understood."""

import asyncio
import gc
import json

import pytest
from pydantic_ai.messages import ModelMessage
from temporalio.testing import ActivityEnvironment

from activities.db.pool import Database
from activities.db.storage import Storage
from activities.step_run import StepRun
from activities.turns import Turns
from settings import Settings
from tests.http.late_steps import late_step, session_of
from tests.models import calls, hangs, says, script, waits
from tests.system import Answer, System, running_system
from worker import open_kit
from workflows.contracts.inputs import ContinuationInput
from workflows.contracts.turns import EndTurn
from workflows.model.turn import TurnError

BATCH = calls(("c1", "open_page", {"url": "u"}), ("c2", "ask_user", {"question": "?"}))
ALICE = {"x-test-principal": "alice"}


def returned(request: list[ModelMessage]) -> dict[str, str]:
    """The tool results of a request, by call id."""
    return {part.tool_call_id: str(part.content) for message in request for part in message.parts if part.part_kind == "tool-return"}


async def seen(system: System) -> Answer:
    """Everything that a session's owner can read of it."""
    found = {}
    for path in ("", "/messages", "/messages?leaf_id=m1", "/tree"):
        answer = await system.http.get(f"/api/sessions/s1{path}", headers=ALICE)
        assert answer.status_code == 200, answer.text
        found[path] = answer.json()
    return found


async def test_r28_r68_r107_a_session_is_what_it_was_when_every_process_has_been_restarted(
    database_url: str, temporal_address: str
) -> None:
    async with running_system(database_url, temporal_address, script(says("one"), says("two"), BATCH)) as before:

        async def say(**body: object) -> Answer:
            answer = await before.post("/chat", {"session_id": "s1", "subject": "order-7", **body}, headers=ALICE)
            assert answer.status_code == 200, answer.text
            return dict(answer.json())

        context = {"version": 1, "actions": [{"name": "beep", "description": "Beeps.", "parameters": {"type": "object"}}]}
        first = await say(id="m1", content="root", host_context=context)
        await say(id="m2", content="a branch", parent_id=first["message_id"])
        asked = await say(id="m3", content="another", parent_id=first["message_id"])
        shown = await seen(before)
    async with running_system(database_url, temporal_address, script(says("three")), like=before) as after:
        assert await seen(after) == shown
        other = await after.post("/chat", {"session_id": "s1", "content": "x", "subject": "order-8"}, headers=ALICE)
        assert other.json()["code"] == "binding_conflict"
        assert (await after.post("/chat", {"session_id": "s1", "content": "x"}, headers={"x-test-principal": "bob"})).status_code == 404
        answer = other
        for call_id in ("c1", "c2"):
            answer = await after.post("/chat", {"session_id": "s1", "tool_call_id": call_id, "tool_result": call_id}, headers=ALICE)
            assert answer.status_code == 200, answer.text
            assert answer.json()["message_id"] == asked["message_id"]
        assert (answer.json()["content"], answer.json()["turn_number"]) == ("three", 5)
        assert "beep" in after.script.tools[0]
        done = await seen(after)
    async with running_system(database_url, temporal_address, script(says("four")), like=after) as again:
        assert await seen(again) == done
        repeated = await again.post("/chat", {"session_id": "s1", "tool_call_id": "c1", "tool_result": "other"}, headers=ALICE)
        assert (repeated.status_code, repeated.json()["recorded_status"]) == (409, "completed")
        last = (await again.post("/chat", {"session_id": "s1", "content": "on"}, headers=ALICE)).json()
        rows = (await seen(again))["/messages"]["messages"]
        assert [row["content"] for row in rows] == ["root", "one", "another", "three", "on", "four"]
        assert last["turn_number"] == 6


async def test_r36_what_was_answered_is_read_everywhere_at_once(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("yes")), apis=2) as system:
        for number in range(8):
            turn = await system.chat("s1", f"message {number}")
            rows = (await system.get("/sessions/s1/messages", api=1))["messages"]
            assert rows[-1]["id"] == turn["message_id"]
            session = await system.get("/sessions/s1", api=1)
            assert (session["status"], session["turn_number"], session["revision"]) == ("idle", number + 1, turn["revision"])


async def end_workflow(system: System) -> None:
    """As an operator would, or a Temporal that lost its data."""
    await system.workflow("s1").terminate("gone")


@pytest.mark.parametrize("workflow", ["lives", "is gone"])
async def test_r108_r138_open_calls_that_nothing_waits_for_are_repaired(database_url: str, temporal_address: str, workflow: str) -> None:
    async with running_system(database_url, temporal_address, script(BATCH, says("Good."))) as system:
        await system.chat("s1")
        await system.conn.execute("update host_batches set state = 'closed'")
        if workflow == "is gone":
            await end_workflow(system)
        repaired = await system.post("/sessions/s1/repair")
        assert repaired.json() == {"session_id": "s1", "cleared_pending": None, "repaired_calls": ["c1", "c2"]}
        tools = (await system.messages("s1"))[1]["segments"][0]["tools"]
        assert [(tool["outcome"], tool["status"]) for tool in tools] == [("interrupted", "unknown")] * 2
        late = await system.resume("s1", "c1")
        assert (late.json()["code"], late.json()["recorded_status"]) == ("already_recorded", "unknown")
        assert (await system.chat("s1", "go on"))["content"] == "Good."
        assert set(returned(system.script.requests[-1])) == {"c1", "c2"}
        again = await system.post("/sessions/s1/repair")
        assert again.json() == {"session_id": "s1", "cleared_pending": None, "repaired_calls": []}


RECORDED = (
    """update calls set state = 'recorded', outcome = 'success', output = '"by another tool"', recorded_at = now() where call_id = $1"""
)


@pytest.mark.parametrize("how", ["used without a workflow", "repaired"])
async def test_r109_a_pending_action_whose_call_has_its_result_is_dropped(database_url: str, temporal_address: str, how: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("Good."))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        await system.conn.execute(RECORDED, "c1")
        if how == "repaired":
            assert (await system.post("/sessions/s1/repair")).status_code == 200
        else:
            await end_workflow(system)
        late = await system.resume("s1", "c1", "late")
        assert (late.json()["code"], late.json()["recorded_status"]) == ("already_recorded", "completed")
        assert (await system.chat("s1", "go on"))["content"] == "Good."
        session = await system.get("/sessions/s1")
        assert (session["pending_action"], session["status"]) == (None, "idle")
        assert (await system.messages("s1"))[1]["segments"][0]["tools"][0]["output"] == "by another tool"
        assert returned(scripted.requests[-1]) == {"c1": "by another tool"}


async def test_l12_a_result_that_only_the_rows_can_refuse_does_not_hang_the_session(database_url: str, temporal_address: str) -> None:
    """Somebody wrote a result past the workflow; a signal, which nobody checks against rows, brings another."""
    async with running_system(database_url, temporal_address, script(BATCH, says("Good."))) as system:
        await system.chat("s1")
        await system.conn.execute(RECORDED, "c1")
        result = ContinuationInput(tenant=system.tenant, tool_call_id="c1", tool_result="late")
        await system.workflow("s1").signal("host_result", result)

        async def refused() -> bool:
            return any(event["type"] == "input.refused" for event in await system.events("s1"))

        await system.until(refused)
        assert (await system.chat("s1", "go on"))["content"] == "Good."
        assert returned(system.script.requests[-1])["c1"] == "by another tool"


async def test_l17_three_round_trips_run_each_step_and_each_tool_once(database_url: str, temporal_address: str) -> None:
    def round_trip(number: int) -> object:
        return calls((f"t{number}", "add", {"a": number, "b": 0}), (f"h{number}", "open_page", {"url": "u"}))

    scripted = script(round_trip(1), round_trip(2), round_trip(3), says("Done."))  # type: ignore[arg-type]
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        answers = [(await system.resume("s1", f"h{number}")).json() for number in (1, 2, 3)]
        assert (answers[-1]["content"], answers[-1]["error"]) == ("Done.", None)
        assert len(scripted.requests) == 4
        kinds = [event["type"] for event in await system.events("s1")]
        assert (kinds.count("tool.call"), kinds.count("tool.result")) == (6, 6)
        assert await system.conn.fetchval("select count(*) from usage_ledger") == 4


async def test_r33_of_two_runs_of_a_step_the_one_that_commits_first_stays(database_url: str, temporal_address: str) -> None:
    go_on = asyncio.Event()
    scripted = script(says("hello"), waits(go_on, "slow and ", "late"), says("quick"))
    async with running_system(database_url, temporal_address, scripted) as system:
        step = late_step(*await session_of(system))
        slow = asyncio.create_task(StepRun(system.kit, step).run())
        await system.until(lambda: len(scripted.requests) == 2)
        quick = await StepRun(system.kit, step).run()
        go_on.set()
        assert (await slow).response == quick.response
        assert [row["content"] for row in await system.messages("s1")] == ["hello", "hello", "again", "quick"]
        kinds = [event["type"] for event in await system.events("s1") if event["turn_id"] == "late"]
        assert (kinds.count("turn.started"), kinds.count("turn.completed")) == (1, 1)


async def test_r33_writers_of_an_older_attempt_add_nothing_to_a_newer_one(database_url: str, temporal_address: str) -> None:
    go_on = asyncio.Event()
    scripted = script(says("hello"), waits(go_on, "old", "er"), hangs("new"), says("newest"))
    async with running_system(database_url, temporal_address, scripted) as system:
        session, leaf = await session_of(system)
        older, newer = late_step(session, leaf), late_step(session, leaf, attempt=2)
        end = EndTurn(session=session, turn=older.turn, step=1, error=TurnError.of("timeout", "late"), revision=4, opening=older.opening)
        first = asyncio.create_task(StepRun(system.kit, older).run())
        await system.streaming()
        await ActivityEnvironment().run(Turns(system.kit).end_turn, end)
        running = StepRun(system.kit, newer)
        second = asyncio.create_task(running.run())
        await system.until(lambda: system.conn.fetchval("select true from live_deltas where text = 'new'"))
        await ActivityEnvironment().run(Turns(system.kit).end_turn, end)
        assert (await StepRun(system.kit, older).run()).state == "stale"
        go_on.set()
        assert (await first).state == "stale"
        assert json.loads(await system.conn.fetchval("select json_agg(text) from live_deltas")) == ["new"]
        running.stop()
        assert (await second).state == "cancelled"
        assert (await system.messages("s1"))[-1]["content"] == "new"


async def test_what_a_worker_is_made_of_is_set_aside_from_collections(settings: Settings) -> None:
    """Reading a long session for the first time makes many objects, and would have a collection go through all that there is."""
    database = await Database.open(settings.database)
    gc.unfreeze()
    try:
        async with open_kit(settings, database, Storage(settings, database)):
            assert gc.get_freeze_count() > len(gc.get_objects())
    finally:
        gc.unfreeze()
        await database.close()
