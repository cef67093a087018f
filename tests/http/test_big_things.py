"""Megabytes in one piece: files of a message, results of a server tool and of a host. They are whole wherever people read them, cut for the
model, out of histories, and they survive encryption, a rollover and the death of a worker.
"""

import base64
import json
import os
from typing import Any

from pydantic_ai.messages import ModelMessagesTypeAdapter

from tests.http.test_attachments import files, history_bytes, image
from tests.io.keys import keys
from tests.models import calls, hangs, says, script
from tests.system import System, running_system

BIG = 10_000_000 if os.environ.get("TEST_LONG") else 2_500_000
"""Bytes; more than Temporal takes in one payload; 10 MB are more than it takes in one request."""

FILES, FILE_BYTES = 16, BIG // 32
OBJECTS: list[Any] = [{"page": number % 10, "x": None} for number in range(BIG // 20)]
"""As JSON, it takes a while to be taken apart."""

LIMIT = 1_000


def tools(message: dict[str, Any]) -> dict[str, Any]:
    """The outputs of a message's tool calls, by call id."""
    return {
        tool["id"]: tool.get("output") for segment in message["segments"] if segment["kind"] == "tool_group" for tool in segment["tools"]
    }


async def whole_everywhere(system: System, data: list[bytes]) -> None:
    """Whatever people read of the session has all of it, and every run of its history next to nothing."""
    outputs = {"c1": "x" * BIG, "h1": OBJECTS}
    user, answer = (await system.messages("s1"))[:2]
    assert tools(answer) == outputs
    assert [file["size"] for file in user["attachments"]] == [len(one) for one in data]
    transcript = (await system.get("/sessions/s1/transcript?limit=20"))["messages"]
    told = {row["call_id"]: row["content"] for row in transcript if row["role"] == "tool"}
    assert (told["c1"], json.loads(told["h1"])) == (outputs["c1"], OBJECTS)
    exported = (await system.http.get("/api/sessions/s1/export")).text.splitlines()
    assert tools(next(row for line in exported if (row := json.loads(line)).get("role") == "assistant")) == outputs
    stream = (await system.http.get("/api/sessions/s1/events?until=turn")).text
    assert f'"output":"{"x" * BIG}"' in stream
    assert max(await history_bytes(system, "s1")) < 100_000


async def test_big_files_and_results_with_encryption_a_rollover_and_a_worker_that_dies(database_url: str, temporal_address: str) -> None:
    asked = calls(("c1", "big", {"characters": BIG}), ("h1", "open_page", {"url": "u"}))
    scripted = script(asked, hangs("Let me"), says("I have read it."), says("As I said."))
    settings: dict[str, Any] = {"codec": keys("a"), "tool_text_limit": LIMIT, "worker_shutdown_seconds": 0.1}
    data = [os.urandom(FILE_BYTES) for _ in range(FILES)]
    async with running_system(database_url, temporal_address, scripted, **settings) as system:
        first = await system.chat("s1", "look", attachments=[image(f"{number}.png", one) for number, one in enumerate(data)])
        assert first["pending_tool_call"]["call_id"] == "h1"
        await system.workflow("s1").signal("roll")
        result = {"session_id": "s1", "tool_call_id": "h1", "tool_result": OBJECTS}
        assert (await system.post("/chat?wait=false", result)).status_code == 202
        await system.until(lambda: len(scripted.requests) == 2)
    async with running_system(database_url, temporal_address, scripted, like=system, **settings) as system:
        await system.idle("s1", 2)
        assert (await system.messages("s1"))[-1]["content"] == "I have read it."
        given = {part.tool_call_id: str(part.content) for part in scripted.results()}
        for call_id, length in (("c1", BIG), ("h1", len(json.dumps(OBJECTS, separators=(",", ":"))))):
            assert f"[Cut here: the first 1,000 of {length:,} characters are shown, {length - LIMIT:,} are left out." in given[call_id]
            assert len(given[call_id]) < LIMIT + 300
        assert [file.data for file in files(scripted.requests[-1][0])] == data
        await whole_everywhere(system, data)
        await system.chat("s1", "Sure?")
        before, after = scripted.requests[-2:]
        assert ModelMessagesTypeAdapter.dump_json(after[: len(before)]) == ModelMessagesTypeAdapter.dump_json(before)


async def test_a_result_over_the_limit_is_a_failure_that_names_it(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "big", {"characters": 20_000}), ("c2", "big", {"characters": 10_000})), says("Less, then."))
    async with running_system(database_url, temporal_address, scripted, tool_result_limit_bytes=16_000) as system:
        assert (await system.chat("s1"))["content"] == "Less, then."
        tool, other = (await system.messages("s1"))[1]["segments"][0]["tools"]
        assert (tool["outcome"], tool["status"]) == ("failed", "failed")
        assert "20,002 bytes is over the limit of 16,000 (OUTLAST_TOOL_RESULT_LIMIT_BYTES)" in tool["output"]
        assert other["output"] == "x" * 10_000
        assert scripted.results()[0].content == tool["output"]


async def test_the_api_sends_a_result_as_text(database_url: str, temporal_address: str) -> None:
    """A workflow that had to take megabytes apart would miss the end of its task, again and again."""
    async with running_system(database_url, temporal_address, script(calls(("h1", "open_page", {"url": "u"})), says("ok"))) as system:
        await system.chat("s1")
        await system.resume("s1", "h1", {"b": [1, None]})
        history = (await system.workflow("s1").fetch_history()).to_json()
        accepted = [event for event in json.loads(history)["events"] if "workflowExecutionUpdateAcceptedEventAttributes" in event]
        (payload,) = accepted[-1]["workflowExecutionUpdateAcceptedEventAttributes"]["acceptedRequest"]["input"]["args"]["payloads"]
        sent = json.loads(base64.b64decode(payload["data"]))
        assert sent["result_json"] == '{"b":[1,null]}' and "tool_result" not in sent
