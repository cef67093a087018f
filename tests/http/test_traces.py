"""Traces: one for each input, from the request through session and activities to the model, whatever is killed meanwhile."""

import asyncio

from opentelemetry.trace import StatusCode
from temporalio.worker import Replayer

from activities.db.client import data_converter
from activities.tracing import worker_interceptors
from settings import TracingSettings
from tests.models import calls, raises, says, script, waits
from tests.replay.corpus import KEPT, kept
from tests.replay.telling import Told
from tests.replay.test_histories import replayer
from tests.spans import Spans, of, trace_of
from tests.system import running_system
from worker import TRACED, WORKFLOWS, flow_digest, workflow_runner

ON = TracingSettings(enabled=True)
FIRST = ["POST /api/chat", "StartUpdateWithStartWorkflow:SessionWorkflow", "HandleUpdate:message", "turn"]
TURN = ["POST /api/chat", "StartWorkflowUpdate:message", "HandleUpdate:message", "turn"]
SECRETS = ("walrus", "petrel", "gannet", "out of order", "puffin")


async def test_each_input_has_a_trace_of_its_own_down_to_the_model(database_url: str, temporal_address: str) -> None:
    spans = Spans()
    scripted = script(
        calls(("c1", "add", {"a": 1, "b": 2}), ("c2", "broken", {}), text="petrel"), says("gannet"), raises(ValueError("puffin"))
    )
    async with running_system(database_url, temporal_address, scripted, tracing=ON) as system:
        first = await system.chat("s1", "walrus")
        given = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
        answer = await system.post("/chat", {"session_id": "s1", "content": "walrus", "id": "m2"}, headers=given)
        await system.http.get("/api/search/sessions?q=walrus")
        await system.http.get("/health")
        await system.until(lambda: len(spans.named("turn")) == 2)
    models = spans.named("chat scripted")
    assert [spans.path(span) for span in models] == [[*turn, "RunActivity:run_step", "chat scripted"] for turn in (FIRST, FIRST, TURN)]
    assert len({trace_of(span) for span in models}) == 2
    mine = [span for span in spans if trace_of(span) == trace_of(models[0])]
    assert sorted(span.name for span in mine if span.name.startswith("RunActivity")) == [
        "RunActivity:load_head",
        *["RunActivity:run_step"] * 2,
        *["RunActivity:run_tool"] * 2,
    ]
    assert f"{trace_of(models[-1]):032x}" == given["traceparent"].split("-")[1]
    ids = {"session_id": "s1", "turn_id": first["turn_id"], "call_id": "c2", "tool_name": "broken", "attempt": "1"}
    (broken,) = spans.named("RunActivity:run_tool", **ids)
    (failed,) = spans.named("turn", turn_id=answer.json()["turn_id"])
    assert [span.status.status_code for span in (broken, failed)] == [StatusCode.ERROR] * 2
    assert (of(failed)["error.type"], failed.status.description) == ("internal", "internal")
    assert of(models[0])["gen_ai.request.model"] == "scripted"
    told = {str(of(span)["gen_ai.input.messages"]).count('"role"') for span in models[:2]}
    assert told == {1}, "a request's span does not grow with the conversation"
    assert {span.name for span in spans} >= {"GET /api/search/sessions"} and "GET /health" not in {span.name for span in spans}
    assert [word for word in SECRETS if word in spans.text()] == []
    assert [event.attributes for span in models for event in span.events] == [{"exception.type": "ValueError"}]


async def test_a_turn_is_one_span_of_its_input_through_a_rollover_and_another_worker(database_url: str, temporal_address: str) -> None:
    spans, go = Spans(), asyncio.Event()
    async with running_system(
        database_url, temporal_address, script(says("one"), waits(go, "a", "b"), says("never")), tracing=ON
    ) as before:
        await before.chat("s1")
        second = await before.submit("s1", "two")
        await before.until(lambda: len(before.script.requests) == 2)
        await before.workflow("s1").signal("roll")
        third = await before.submit("s1", "three", when_busy="enqueue")
    async with running_system(database_url, temporal_address, script(says("two"), says("three")), like=before, tracing=ON) as after:
        await after.until(lambda: len(after.script.requests) == 2)
        await after.until(lambda: len(spans.named("turn")) == 3)
        await Told.of(after).at_rest("s1")  # the end of a history that is cut before would be decided, and told, by its replay
        histories = await after.histories("s1")
        await after.chat("s1", "roll is done")
    turns = {turn_id: spans.named("turn", turn_id=turn_id) for turn_id in (second["turn_id"], third["turn_id"])}
    assert [len(found) for found in turns.values()] == [1, 1]
    assert [spans.path(span) for (span,) in turns.values()] == [TURN, TURN]
    (two,), (three,) = turns.values()
    assert of(two)["temporalRunID"] != of(three)["temporalRunID"]
    assert len({trace_of(span) for span in spans.named("turn")}) >= 3
    assert len(histories) == 2
    told = len(list(spans))
    on = Replayer(
        workflows=WORKFLOWS,
        data_converter=data_converter(None),
        workflow_runner=workflow_runner(*TRACED),
        build_id=flow_digest(),
        interceptors=worker_interceptors(),
    )
    for history in histories:
        await replayer().replay_workflow(history)
        await on.replay_workflow(history)
    for path in KEPT:
        await on.replay_workflow(kept(path))
    assert len(list(spans)) == told
