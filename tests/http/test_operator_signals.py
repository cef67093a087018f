"""The same inputs as an operator types them: `temporal workflow signal`, against the real system."""

import asyncio
import json
from typing import Any

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import WorkflowUpdateFailedError
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError

from activities.db.client import forget_failure, session_start
from tests.everything import session_of, told, verifying
from tests.http.builds import temporal
from tests.model.invariants import check_rows
from tests.models import calls, hangs, says, script
from tests.replay.telling import Between, until_set
from tests.system import System, running_system
from workflows.contracts.errors import Refusal
from workflows.model.state import Head


async def signal(system: System, session: str, name: str, payload: dict[str, Any] | None = None) -> None:
    """Types the command. The test's sessions are of a tenant of their own, so the payload names it."""
    typed = ["--workflow-id", system.workflow(session).id, "--name", name]
    if payload is not None:
        typed += ["--input", json.dumps(payload | {"tenant": system.tenant})]
    code, said = await temporal(system, "workflow", "signal", *typed)
    assert code == 0, said


async def test_r114_an_operator_answers_for_a_host_and_only_once(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("Thanks."))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        await signal(system, "s1", "host_result", {"tool_call_id": "c1", "tool_result": "done by hand"})
        await system.idle("s1", 2)
        assert [part.content for part in scripted.results()] == ["done by hand"]
        await signal(system, "s1", "continuation", {"tool_call_id": "c1", "tool_result": "again"})

        async def refused() -> Any:
            return [event for event in await system.events("s1") if event["type"] == "input.refused"]

        events = await system.until(refused)
        assert [(event["what"], event["code"], event["turn_id"]) for event in events] == [("continuation", "already_recorded", None)]
        listed = await system.workflow("s1").query("refusals")
        assert [(refusal["what"], refusal["code"]) for refusal in listed] == [("continuation", "already_recorded")]
        assert (await system.messages("s1"))[1]["segments"][0]["tools"][0]["output"] == "done by hand"


async def test_r63_an_operators_message_is_a_turn_and_twice_is_one(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        for _ in range(2):
            await signal(system, "s1", "message", {"content": "Hello from the operator", "id": "op-1"})
        await system.idle("s1", 2)
        contents = [row["content"] for row in await system.messages("s1") if row["role"] == "user"]
        assert contents == ["hello", "Hello from the operator"]


async def test_r63_r154_what_came_by_http_comes_again_by_signal_and_the_other_way_round(database_url: str, temporal_address: str) -> None:
    """The same id and the same words are the same input, whichever way they take; other words are not."""
    async with running_system(database_url, temporal_address) as system:
        message: dict[str, Any] = {"content": "héllo", "id": "m1", "profile": "assistant", "config": {"max_steps": 3}}
        first = await system.chat("s1", **message)
        await signal(system, "s1", "message", message)
        await signal(system, "s1", "message", {"content": "second", "id": "m2"})
        await system.idle("s1", 2)
        assert (await system.chat("s1", "second", id="m2"))["turn_number"] == 2
        words = {"session_id": "s1", "content": "Be brief.", "id": "g1", "message_type": "steering"}
        await signal(system, "s1", "steer", {"content": "Be brief.", "id": "g1"})
        await system.idle("s1", 3)
        assert (await system.post("/chat?wait=false", words)).status_code == 202
        assert await system.workflow("s1").query("refusals") == []
        assert (await system.chat("s1", **message))["turn_id"] == first["turn_id"]
        await signal(system, "s1", "message", message | {"config": {"max_steps": 4}})

        async def refused() -> Any:
            return [(each["what"], each["code"]) for each in await system.workflow("s1").query("refusals")]

        assert await system.until(refused) == [("message", "duplicate_id")]
        assert (await system.get("/sessions/s1"))["turn_number"] == 3


async def test_r91_an_operator_cancels_steers_and_rolls(database_url: str, temporal_address: str) -> None:
    scripted = script(hangs("par"), says("steered"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.submit("s1")
        await system.until(lambda: scripted.requests)
        await signal(system, "s1", "cancel", {})
        await system.idle("s1", 1)
        await signal(system, "s1", "steer", {"content": "Be brief.", "id": "advice-1"})
        await system.idle("s1", 2)
        run = (await system.workflow("s1").describe()).run_id
        await signal(system, "s1", "roll")
        await system.until(lambda: _rolled(system, run))
        assert (await system.chat("s1"))["turn_number"] == 3


async def _rolled(system: System, run: str | None) -> bool:
    return (await system.workflow("s1").describe()).run_id != run


async def test_l12_nonsense_from_an_operator_harms_nothing(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        await signal(system, "s1", "message", {"content": {"not": "text"}})
        await signal(system, "s1", "message", {"content": "a\x00b"})
        await signal(system, "s1", "message", {"content": "x", "id": "no spaces allowed"})
        for name in ("message", "continuation", "host_result", "steer", "cancel"):
            await signal(system, "s1", name)
        # An emoji that a host cut in two: JSON to Temporal, but no text.
        await signal(system, "s1", "host_result", {"tool_call_id": "c1", "tool_result": ["\ud83d"]})
        # What no converter of ours reads: no encoding, one that is no text, one of somebody's own, a class that nobody has.
        encodings: tuple[dict[str, bytes], ...] = (
            {},
            {"encoding": b"\xff"},
            {"encoding": b"binary/zstd"},
            {"encoding": b"json/protobuf", "messageType": b"a.B"},
        )
        for encoding in encodings:
            await system.workflow("s1").signal("message", RawValue(Payload(metadata=encoding, data=b"{}")))
        await signal(system, "s1", "no_such_signal", {})
        assert (await system.chat("s1", "still there?"))["content"] == "hello"
        listed = await system.workflow("s1").query("refusals")
        assert [refusal["code"] for refusal in listed] == ["bad_request"] * 13


async def test_r62_who_reads_a_turn_that_the_rows_refuse_is_told_so(database_url: str, temporal_address: str) -> None:
    """A message by signal comes past the rows: whether its parent is there is found out when its turn is to begin."""
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        path = "/api/sessions/s1/events?after=before:t9&until=turn"
        reading = asyncio.create_task(system.http.get(path))
        await asyncio.wait({reading}, timeout=0.3)
        message = {"content": "Hello", "id": "op-1", "turn_id": "t9", "parent_id": "nowhere"}
        await system.workflow("s1").signal("message", message | {"tenant": system.tenant, "roles": ["admin"]})
        for answer in (await reading, await system.http.get(path)):
            events = [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line.startswith("data: ")]
            assert [(event["type"], event["code"], event["refused_turn_id"]) for event in events] == [
                ("input.refused", "unknown_parent", "t9")
            ]
        assert (await system.chat("s1", "go on"))["error"] is None


@pytest.mark.parametrize("live", [False, True])
async def test_l09_temporals_own_cancel_ends_what_runs_and_no_session(database_url: str, temporal_address: str, live: bool) -> None:
    """`temporal workflow cancel`, or the button of the Web UI: an idle session's workflow ends, and the next message begins it anew."""
    scripted = script(says("one"), hangs("Half"), says("three")) if live else script(says("one"), says("three"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        if live:
            await system.submit("s1", "two")
            await system.streaming()
        await system.workflow("s1").cancel()
        await system.until(lambda: ended(system, 2 if live else 1))  # as rows say: a workflow that has ended hears of nothing more
        answer = await system.chat("s1", "go on")
        assert (answer["content"], answer["turn_number"]) == ("three", 3 if live else 2)
        await check_rows(system, "s1")


async def ended(system: System, turns: int) -> bool:
    shown = await system.get("/sessions/s1")
    return bool(shown["turn_number"] == turns and shown["live_turn"] is None)


@pytest.mark.parametrize("cancelled", [False, True])
async def test_r37_a_first_message_by_signal_that_the_rows_refuse_leaves_the_id_free(
    database_url: str, temporal_address: str, cancelled: bool
) -> None:
    """It is told to whoever asks what was refused: there is no row yet to announce it under."""
    between, go_on = Between(), asyncio.Event()
    between.after = until_set(go_on, "load_head")  # a cancel that came behind the refusal would be refused itself
    async with running_system(database_url, temporal_address, interceptors=[between]) as system:
        ann = {"principal": "ann", "tenant": system.tenant}
        said = ann | {"content": "hello", "id": "m1", "turn_id": "t1", "parent_id": "nobody", "subject": "order-7"}
        workflow = await system.begun_by_signal("s1", said)
        if cancelled:
            await workflow.signal("cancel", ann | {"turn_id": "t1"})
        go_on.set()

        async def settled() -> bool:
            head = await workflow.query("head", result_type=Head)
            return head.born and head.owner is None

        await system.until(settled)
        (refusal,) = await workflow.query("refusals")
        assert (refusal["what"], refusal["code"]) == ("message", "unknown_parent")
        answer = await system.chat("s1", "hello", id="m1", subject="order-8")
        assert (answer["error"], answer["turn_number"], answer["user_message_id"]) == (None, 1, "m1")
        session = await system.get("/sessions/s1")
        assert (session["owner_id"], session["subject"]) == ("local", "order-8")
        await check_rows(system, "s1")


async def test_r143_steering_by_signal_on_the_heels_of_a_first_message_is_taken(database_url: str, temporal_address: str) -> None:
    scripted = script(says("Hello."), says("Briefly."))
    async with running_system(database_url, temporal_address, scripted) as system:
        workflow = await system.begun_by_signal("s1", {"content": "hello", "id": "m1"})
        await workflow.signal("steer", {"tenant": system.tenant, "content": "Be brief.", "id": "g1"})

        async def taken() -> Any:
            return await system.conn.fetchval("select true from steering where message_id is not null")

        await system.until(taken)
        assert await workflow.query("refusals") == []
        await check_rows(system, "s1")
        ref = await session_of(system, "s1")
        async with verifying(system, database_url) as verifier:
            verdict = await verifier.verify(ref)
            assert (verdict.state, told(verdict), verdict.notes) == ("same", [], [])


async def test_l12_an_action_whose_times_have_no_date_is_refused_and_by_signal_has_none(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hello"), calls(("c1", "my_act", {})), says("Done."))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        action = {"name": "my_act", "deadline_seconds": 1e300, "remind_seconds": 1e300}
        context = {"version": 1, "actions": [action]}
        answer = await system.post("/chat", {"session_id": "s1", "content": "act", "host_context": context})
        assert (answer.status_code, "deadline_seconds" in answer.text) == (422, True)
        await system.workflow("s1").signal("message", {"tenant": system.tenant, "content": "act", "host_context": context})
        await system.idle("s1", 2)
        assert (await system.get("/sessions/s1"))["pending_action"]["deadline_at"] is None
        assert (await system.resume("s1", "c1")).json()["content"] == "Done."


async def test_l12_a_limit_that_is_no_number_is_refused(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        for word in ("inf", "NaN"):
            config = {"budget": {"max_cost_usd": word}}
            assert (await system.post("/chat", {"session_id": "s1", "content": "hello", "config": config})).status_code == 422
            await system.workflow("s1").signal("message", {"tenant": system.tenant, "content": "hello", "config": config})

        async def refused() -> Any:
            return len(await system.workflow("s1").query("refusals")) == 2

        await system.until(refused)
        assert (await system.chat("s1"))["turn_number"] == 2


async def test_l12_names_that_are_too_long_for_a_filter_end_no_session(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.begun_by_signal("s1", {"content": "hello", "principal": "é" * 5000, "profile": "assistant"})
        await system.idle("s1", 1)
        assert (await system.chat("s1"))["turn_number"] == 2
        await system.workflow("s1").signal("roll")
        assert (await system.chat("s1"))["turn_number"] == 3


@pytest.mark.parametrize("by", ["signal", "update"])
async def test_l12_r37_a_first_input_of_a_caller_whose_name_no_row_could_hold_is_refused(
    database_url: str, temporal_address: str, by: str
) -> None:
    """As the API refuses such a name. The sender can learn of it, the workflow ends, and the id is free."""
    async with running_system(database_url, temporal_address) as system:
        said = {"tenant": system.tenant, "content": "hello", "id": "m1", "principal": "a\x00b"}
        if by == "signal":
            workflow = await system.begun_by_signal("s1", said)
        else:
            start = session_start(system.tenant, "s1", system.settings.task_queue)
            with pytest.raises(WorkflowUpdateFailedError) as caught:
                await system.temporal.execute_update_with_start_workflow("message", said, start_workflow_operation=start)
            await forget_failure(start)
            assert isinstance(caught.value.cause, ApplicationError)
            assert Refusal.from_failure(caught.value.cause).code == "bad_request"
            workflow = system.workflow("s1")
        await workflow.result()
        if by == "signal":
            (refusal,) = await workflow.query("refusals")
            assert (refusal["what"], refusal["code"]) == ("message", "bad_request")
            assert refusal["message"] == "principal holds a NUL character or half a surrogate pair"
        assert (await system.chat("s1", "hello", id="m1"))["turn_number"] == 1
        assert (await system.get("/sessions/s1"))["owner_id"] == "local"
        with pytest.raises(WorkflowUpdateFailedError):
            await system.workflow("s1").execute_update("message", said | {"id": "m2", "roles": ["admin"]})
        await system.workflow("s1").signal("message", said | {"id": "m3", "roles": ["admin"]})

        async def refused() -> Any:
            return [(each["what"], each["code"]) for each in await system.workflow("s1").query("refusals")]

        assert await system.until(refused) == [("message", "bad_request")]
        assert (await system.chat("s1", "go on"))["turn_number"] == 2
