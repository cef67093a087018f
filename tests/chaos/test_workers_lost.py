"""Workers and apis that are killed or asked to stop in the middle of a turn."""

import asyncio
import signal
import time
from typing import Any

from temporalio.client import Client, WorkflowHandle

from cli.services.postgres import PostgresServer
from cli.services.temporal import TemporalServer
from tests.chaos.processes import Programs, ready
from tests.chaos.stand import Stand, standing, until
from tests.http.sse import Frame, shown_text, until_turn_ends
from tests.provider import call, says
from workflows.contracts.naming import session_workflow_id

TAKEOVER_SECONDS = 45.0


async def workflow(temporal: TemporalServer, session: str) -> "WorkflowHandle[Any, Any]":
    client = await Client.connect(temporal.address)
    return client.get_workflow_handle(session_workflow_id("default", session))


async def started_again(temporal: TemporalServer, session: str) -> bool:
    """Whether Temporal began an activity of the session a second time."""
    history = await (await workflow(temporal, session)).fetch_history()
    return any(event.activity_task_started_event_attributes.attempt > 1 for event in history.events)


async def begins_again(temporal: TemporalServer, session: str) -> bool:
    """Whether an activity of the session is being tried a second time, or is about to be."""
    described = await (await workflow(temporal, session)).describe()
    return any(pending.attempt > 1 for pending in described.raw_description.pending_activities)


async def given_up(temporal: TemporalServer, session: str) -> bool:
    """Whether Temporal heard nothing of an activity of the session for so long that it began it again."""
    history = await (await workflow(temporal, session)).fetch_history()
    begun = [event.activity_task_started_event_attributes for event in history.events]
    ended = [event.HasField("activity_task_timed_out_event_attributes") for event in history.events]
    return any(ended) or any(one.last_failure.HasField("timeout_failure_info") for one in begun)


def stalls(*texts: str) -> dict[str, object]:
    """The provider says something and then nothing more."""
    return {"stream": [{"text": text} for text in texts], "end": "stall"}


async def read(stand: Stand, accepted: dict[str, str]) -> list[Frame]:
    """The turn as a reader saw it who was there all the time."""
    return await until_turn_ends(stand.http, accepted["events"] + "&until=turn")


async def test_r88_l22_another_worker_goes_on_from_the_last_finished_step(
    programs: Programs, own_postgres: PostgresServer, own_temporal: TemporalServer
) -> None:
    script = (says("First. ", calls=[call("note", {"seconds": 0})]), stalls("Half an "), says("Half an answer."))
    async with standing(programs, own_postgres, own_temporal, *script) as stand:
        first = await stand.worker()
        accepted = await stand.submit()
        reading = asyncio.create_task(read(stand, accepted))
        await until(lambda: stand.row("select true from live_deltas where text like '%Half%'"))
        await stand.worker()
        first.kill()
        killed = time.monotonic()
        assert await stand.ended(accepted["turn_id"]) == "completed"
        assert time.monotonic() - killed < TAKEOVER_SECONDS
        frames = await reading
        assert [frame.type for frame in frames].count("step.restarted") == 1
        assert "".join(shown_text(frames).values()) == "First. Half an answer."
        assert (await stand.messages())[1]["content"] == "First. Half an answer."
        assert len(stand.provider.requests) == 3
        assert dict(stand.effects) == {"c1": 1}


async def test_l15_a_tool_whose_worker_dies_is_uncertain_unless_it_may_run_twice(
    programs: Programs, own_postgres: PostgresServer, own_temporal: TemporalServer
) -> None:
    both = [call("note", {"seconds": 60}, "once"), call("note_again", {"seconds": 60}, "twice")]
    async with standing(programs, own_postgres, own_temporal, says(calls=both), says("So be it.")) as stand:
        first = await stand.worker()
        accepted = await stand.submit()
        await until(lambda: len(stand.effects) == 2)
        first.kill()
        await stand.worker()
        assert await stand.ended(accepted["turn_id"]) == "completed"
        assert dict(stand.effects) == {"once": 1, "twice": 2}
        tools = (await stand.messages())[1]["segments"][0]["tools"]
        assert [(tool["id"], tool.get("outcome"), tool.get("status")) for tool in tools] == [
            ("once", "interrupted", "unknown"),
            ("twice", None, None),
        ]
        told = {part["tool_call_id"]: part["content"] for part in stand.provider.requests[-1].body["messages"] if part["role"] == "tool"}
        assert "not known" in told["once"]
        assert "noted" in told["twice"]


async def test_r83_a_worker_that_is_asked_to_stop_hands_its_turns_over(
    programs: Programs, own_postgres: PostgresServer, own_temporal: TemporalServer
) -> None:
    """What ends within the grace counts; a step that does not is run elsewhere at once; a tool that may not run twice is `unknown`."""
    script = (
        {"when": "quick", **says("In ", "time.")},
        {"when": "slow tool", **says(calls=[call("note", {"seconds": 60}, "cut")])},
        {"when": "slow step", **stalls("Not ")},
        says("Handed over."),
    )
    async with standing(programs, own_postgres, own_temporal, *script) as stand:
        first = await stand.worker(OUTLAST_WORKER_SHUTDOWN_SECONDS="1")
        slow = await stand.submit("slow step", "s1")
        tool = await stand.submit("slow tool", "s2")
        await until(lambda: stand.effects["cut"])
        await until(lambda: stand.row("select true from live_deltas"))
        stand.provider.script[:] = [entry for entry in stand.provider.script if entry.get("when") != "slow step"]
        await stand.worker()
        first.process.send_signal(signal.SIGTERM)
        assert [await stand.ended(turn["turn_id"]) for turn in (slow, tool)] == ["completed", "completed"]
        assert not [session for session in ("s1", "s2") if await given_up(own_temporal, session)]
        assert await first.ended() == 0
        assert (await stand.messages("s1"))[1]["content"] == "Handed over."
        cut = (await stand.messages("s2"))[1]["segments"][0]["tools"][0]
        assert (cut["status"], stand.effects["cut"]) == ("unknown", 1)


async def test_r36_k65_s54_what_was_accepted_is_answered_though_api_and_worker_are_killed(
    programs: Programs, own_postgres: PostgresServer, own_temporal: TemporalServer
) -> None:
    script = (stalls(), says(calls=[call("open_page", {"url": "u"}, "h1")]), stalls(), says("It is open."))
    async with standing(programs, own_postgres, own_temporal, *script) as stand:
        worker = await stand.worker()

        async def killed_after(accepted: dict[str, str], requests: int) -> str:
            await until(lambda: len(stand.provider.requests) == requests)
            worker.kill()
            stand.api.kill()
            stand.api.start()
            worker.start()
            await ready(stand.url)
            return await stand.ended(accepted["turn_id"])

        message = await stand.submit("please", id="m1")
        assert await killed_after(message, 1) == "waiting"
        assert [row["id"] for row in await stand.messages()] == ["m1", message["message_id"]]
        resumed = await stand.submit_result("h1", {"opened": True})
        assert resumed["message_id"] == message["message_id"]
        assert await killed_after(resumed, 3) == "completed"
        rows = await stand.messages()
        assert (len(rows), rows[1]["content"]) == (2, "It is open.")
        assert rows[1]["segments"][0]["tools"][0]["output"] == {"opened": True}


async def test_l22_a_living_step_and_tool_whose_heartbeats_are_lost_are_not_repeated(
    programs: Programs, own_postgres: PostgresServer, own_temporal: TemporalServer
) -> None:
    """Their worker stands still for longer than Temporal waits for a sign of life, as on a machine that swaps; another one is there."""
    go_on = asyncio.Event()
    slow = {"stream": [{"text": "Slow "}, {"pause": go_on}, {"text": "but sure."}]}
    script = ({"when": "slowly", **slow}, {"when": "use it", **says(calls=[call("note_and_wait", {})])}, says("Noted."))
    async with standing(programs, own_postgres, own_temporal, *script) as stand:
        first = await stand.worker()
        turns = [await stand.submit("slowly", "s1"), await stand.submit("use it", "s2")]
        await until(lambda: stand.effects["c1"])
        await until(lambda: stand.row("select true from live_deltas"))
        await stand.worker()
        first.freeze()
        await until(lambda: begins_again(own_temporal, "s1"))
        await until(lambda: given_up(own_temporal, "s2"))
        first.thaw()
        go_on.set()
        stand.let_go()
        assert [await stand.ended(turn["turn_id"]) for turn in turns] == ["completed", "completed"]
        await until(lambda: started_again(own_temporal, "s1"))  # Temporal says so once its second attempt has ended
        assert len(stand.provider.requests) == 3
        assert (await stand.messages("s1"))[1]["content"] == "Slow but sure."
        assert "step.restarted" not in await stand.kinds()
        noted = (await stand.messages("s2"))[1]["segments"][0]["tools"][0]
        assert (dict(stand.effects), noted["output"], noted.get("status")) == ({"c1": 1}, "noted", None)


async def test_s54_a_resume_that_was_accepted_goes_on_though_everyone_dies(
    programs: Programs, own_postgres: PostgresServer, own_temporal: TemporalServer
) -> None:
    script = (says(calls=[call("open_page", {"url": "u"}, "c1")]), says("Opened.", before=1.0))
    async with standing(programs, own_postgres, own_temporal, *script) as stand:
        worker = await stand.worker()
        token = (await stand.chat())["pending_tool_call"]["pause_token"]
        accepted = await stand.post(f"/api/resume/{token}?wait=false", 202, tool_result="opened")
        worker.kill()
        stand.api.kill()
        stand.api.start()
        await stand.worker()
        await stand.api.says("api ready", times=2)
        assert await stand.ended(accepted["turn_id"]) == "completed"
        answer = (await stand.messages())[1]
        assert answer["content"] == "Opened." and answer["id"] == accepted["message_id"]
        assert answer["segments"][0]["tools"][0]["output"] == "opened"
        await stand.post(f"/api/resume/{token}", 409, tool_result="again")
