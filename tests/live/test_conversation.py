"""The main job with a real language model, on this machine alone: everything is real, and everything is killed once."""

import asyncio
import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from cli.services.ports import free_port
from tests.chaos.processes import Dev, Program, Programs, gone, ready
from tests.live.customer import Customer, Turn
from tests.live.serving import ModelServer
from tests.live.transcript import Transcript

PROFILE = Path(__file__).with_name("bookshop.py")
BOOKS = {"status": "shipped", "arrives": "Thursday"}


@dataclass
class Stage:
    """What the acts share."""

    model: ModelServer
    programs: Programs
    dev: Dev
    transcript: Transcript
    env: dict[str, str]

    def program(self, command: str, **more: str) -> Program:
        """An `outlast` process of its own beside `outlast dev`, for sessions of another task queue."""
        env = {**self.env, "OUTLAST_DATA_DIR": str(self.dev.data), "OUTLAST_TASK_QUEUE": "apart", **more}
        return self.programs.start(command, env=env)


@pytest.mark.timeout(1200)
async def test_live_a_conversation_outlives_everything(
    model: ModelServer, programs: Programs, folder: Path, transcript: Transcript
) -> None:
    env = {
        "OUTLAST_MODEL": f"openai-chat:{model.model}",
        "OPENAI_BASE_URL": model.url,
        "OUTLAST_PROFILES": str(PROFILE),
        "OUTLAST_PROFILE": "bookshop",
    }
    dev = Dev(programs, folder / "data", env=env)
    await dev.ready()
    stage = Stage(model, programs, dev, transcript, env)
    customer = Customer(dev.url, "order", transcript)
    call = await talks_and_asks_the_host(stage, customer)
    await everything_is_killed(stage, customer)
    await goes_on(stage, customer, call)
    await reads_back(stage, customer)
    await a_worker_is_killed_in_mid_stream(stage)
    transcript.measured(await model.requests())
    assert await dev.program.stop() == 0


async def talks_and_asks_the_host(stage: Stage, customer: Customer) -> dict[str, Any]:
    """Words in pieces; then an action, for which the session waits."""
    stage.transcript.chapter("Words, and an action")
    words = await customer.says("What is a lighthouse?")
    assert words.answer["error"] is None
    assert words.pieces > 3
    assert words.text == words.answer["content"]
    asks = await customer.says("Please find_order B-2041 for me.")
    call: dict[str, Any] = asks.answer["pending_tool_call"]
    assert call["tool_name"] == "find_order"
    assert re.fullmatch("[A-Z]-[0-9]{4}", call["arguments"]["order"])
    assert (await customer.get())["status"] == "waiting_host"
    return call


async def everything_is_killed(stage: Stage, customer: Customer) -> None:
    """No process gets to say goodbye, and what comes up again knows all of it."""
    before, session = await customer.rows(), await customer.get()
    stack = [*stage.dev.program.children(), psutil.Process(stage.dev.program.pid)]
    names = ", ".join(sorted({"outlast dev" if process.pid == stage.dev.program.pid else process.name() for process in stack}))
    for process in stack:
        process.kill()
    stage.dev.program.process.wait()
    await gone(*(process.pid for process in stack))
    stage.transcript.told(f"`kill -9` of all {len(stack)} processes: {names}.")
    began = time.monotonic()
    stage.dev.program.start()
    await stage.dev.ready(starts=2)
    stage.transcript.told(f"`outlast dev` again, on the same folder: ready after {time.monotonic() - began:.1f} s.")
    assert await customer.rows() == before
    assert await customer.get() == session


async def goes_on(stage: Stage, customer: Customer, call: dict[str, Any]) -> None:
    """The host's answer reaches the model, in the message that asked for it."""
    result = {"order": call["arguments"]["order"], **BOOKS}
    told = await customer.answers(call["call_id"], result)
    assert (told.answer["error"], told.answer["pending_tool_call"]) == (None, None)
    assert told.text == told.answer["content"] != ""
    sent = (await stage.model.requests())[-1]["request"]["messages"]
    asked, answered = sent[-2:]
    assert [json.loads(one["function"]["arguments"]) for one in asked["tool_calls"]] == [call["arguments"]]
    assert (answered["role"], json.loads(answered["content"])) == ("tool", result)
    assert answered["tool_call_id"] == asked["tool_calls"][0]["id"]
    day = await customer.says("Thank you! On which day does it arrive?")
    assert day.answer["error"] is None
    assert (await customer.get())["status"] == "idle"


async def reads_back(stage: Stage, customer: Customer) -> None:
    """What was seen on the way is what is kept, character for character."""
    first, asking, told, last = customer.turns
    rows = await customer.rows()
    assert [row["content"] for row in rows[1::2]] == [first.text, asking.text + told.text, last.text]
    (group,) = [segment for segment in rows[3]["segments"] if segment["kind"] == "tool_group"]
    call = asking.answer["pending_tool_call"]
    kept = [(tool["id"], tool["name"], tool["input"], tool["output"]) for tool in group["tools"]]
    assert kept == [(call["call_id"], "find_order", call["arguments"], {"order": call["arguments"]["order"], **BOOKS})]
    again = await customer.replay()
    assert [turn.text for turn in again] == [turn.text for turn in customer.turns]
    assert [turn.answer for turn in again] == [turn.answer for turn in customer.turns]
    stage.transcript.told(f"Read back: {len(rows)} messages and {len(again)} turns of events, equal to what was streamed.")


async def a_worker_is_killed_in_mid_stream(stage: Stage) -> None:
    """The reader stays connected; another worker takes the step up and says where it begins again."""
    stage.transcript.chapter("A worker dies in the middle of a sentence")
    stage.transcript.told("Another session, with API and worker as processes of their own.")
    port = free_port()
    api, worker = stage.program("api", OUTLAST_API__PORT=str(port)), stage.program("worker")
    await api.says("ready")
    await ready(f"http://127.0.0.1:{port}")
    customer = Customer(f"http://127.0.0.1:{port}", "story", stage.transcript)
    reading = asyncio.create_task(customer.says("Tell me a long story about a lighthouse and a storm."))
    await until(lambda: bool(customer.turns) and customer.turns[-1].pieces >= 5, reading)
    worker.kill()
    turn = customer.turns[-1]
    stage.transcript.told(f"`kill -9` of the worker after {len(turn.text)} characters: “{turn.text} …”. Another one is started.")
    await stage.program("worker").says("ready")
    began = time.monotonic()
    await until(lambda: "step.restarted" in turn.types, reading)
    passed = time.monotonic() - began
    assert passed < 15.0
    stage.transcript.told(f"The stream is still open. {passed:.1f} s after the new worker is there it says `step.restarted`.")
    await reading
    assert turn.types.count("step.restarted") == 1
    assert turn.text == turn.answer["content"] == (await customer.rows())[-1]["content"]
    assert turn.answer["error"] is None
    stage.transcript.told("What the reader has in the end is what the message keeps.")


async def until(seen: Callable[[], bool], reading: "asyncio.Task[Turn]") -> None:
    """Waits until the reader has seen something. Its stream must not end before."""
    while not seen():
        assert not reading.done(), "the turn was over too soon"
        await asyncio.sleep(0.01)
