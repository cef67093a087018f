"""`outlast verify` and `outlast rebuild`: rows held against histories, and put right from there."""

import asyncio
from functools import partial
from typing import Any

import pytest
from pydantic_ai.messages import UserPromptPart

from activities.deriving import verifying as verifying_again
from activities.runs import Runs
from cli.rebuild.run import Picked
from settings import TemporalSettings
from tests.commands import ran
from tests.damages import DAMAGES, Damage, do
from tests.everything import rolled, session_of, steer, told, used_everything, verifying
from tests.io.keys import keys
from tests.models import says, script, waits
from tests.replay.telling import Between, losing, until_set
from tests.services import as_runtime
from tests.system import System, running_system
from workflows.contracts.errors import SetupError
from workflows.contracts.naming import session_workflow_id


async def shown(system: System, name: str) -> dict[str, Any]:
    """Everything that the API reads of a session, transcripts byte by byte."""
    forms = ("jsonl", "pydantic-ai")
    return {
        "session": await system.get(f"/sessions/{name}"),
        "messages": await system.messages(name),
        "tree": await system.get(f"/sessions/{name}/tree"),
        "exports": [(await system.http.get(f"/api/sessions/{name}/export", params={"format": form})).content for form in forms],
    }


async def command(system: System, url: str, *arguments: str) -> tuple[int | None, str, str]:
    """Runs the command line; exit code, stdout, stderr."""
    return await ran(*arguments, at={"OUTLAST_DATABASE__URL": url, "TEMPORAL_ADDRESS": system.address})


async def test_r69_r108_r109_damaged_rows_are_found_and_rebuilt(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("x"))) as system:
        system.script.behaviours.clear()
        await used_everything(system, "all", roll=True)
        ref = await session_of(system, "all")
        before = await shown(system, "all")
        assert len(before["tree"]["messages"]) > 20
        async with verifying(system, database_url) as verifier:
            clean = await verifier.verify(ref)
            assert (clean.state, told(clean), clean.notes) == ("same", [], [])
            for damage in DAMAGES:
                await do(system.conn, damage, ref.session_uid)
                found = await verifier.verify(ref)
                assert damage.found in [one.what for one in found.differences], (damage.name, told(found))
                rebuilt = await verifier.rebuild(ref)
                assert (rebuilt.state, rebuilt.notes) == ("rebuilt", []), (damage.name, told(rebuilt))
                assert await shown(system, "all") == before, damage.name
            assert (await verifier.verify(ref)).state == "same"
        await _by_command(system, database_url, ref.session_uid)
        await _goes_on(system)


async def _by_command(system: System, url: str, uid: str) -> None:
    """The same by the command line, and that a worker's role is not enough."""
    named = ("all", "--tenant", system.tenant)
    code, out, err = await command(system, url, "verify", *named)
    assert (code, out, err) == (0, "1 session: 1 as their histories say\n", ""), (out, err)
    await do(system.conn, DAMAGES[3], uid)
    code, out, err = await command(system, url, "verify", "--query", f"WorkflowId = '{session_workflow_id(system.tenant, 'all')}'")
    assert code == 1 and "wrong active_leaf_id" in out and "1 differ" in out and err == "", (out, err)
    code, out, err = await command(system, as_runtime(url), "rebuild", *named)
    assert code == 1 and err.count("\n") == 1 and "the role that owns the schema" in err, err
    code, out, err = await command(system, url, "rebuild", "--all")
    assert code == 0 and "1 session: 1 rebuilt\n" in out, (out, err)
    code, out, err = await command(system, url, "verify", "nobody", "--tenant", system.tenant)
    assert (code, out, err) == (1, "", f"outlast: no session 'nobody' in tenant '{system.tenant}'\n")
    code, out, err = await command(system, url, "verify", "--tenant", "nosuch")
    assert (code, out, err) == (1, "", "outlast: no session is meant by that: nothing was verified\n")
    for picked in (Picked([]), Picked(["x"], all=True), Picked([], "t", "q")):
        with pytest.raises(SetupError, match="one of them"):
            picked.check()


async def _goes_on(system: System) -> None:
    """What was rebuilt is what the workflow goes on with."""
    assert (await system.resume("all", "h5")).json()["pending_tool_call"]["call_id"] == "h6"
    system.script.then(says("All right."))
    assert (await system.resume("all", "h6")).json()["content"] == "All right."
    assert "queued words" in str(system.script.requests[-1][-1])


async def test_r69_what_lies_before_the_oldest_retained_run_is_kept_and_said(database_url: str, temporal_address: str) -> None:
    """Histories are encrypted, and most of what is in them is elsewhere."""
    away = TemporalSettings(inline_limit_bytes=1024)
    async with running_system(database_url, temporal_address, script(says("x")), codec=keys("k"), temporal=away) as system:
        system.script.behaviours.clear()
        await used_everything(system, "all", roll=True)
        ref = await session_of(system, "all")
        workflow_id = session_workflow_id(system.tenant, "all")
        runs = Runs(system.temporal, workflow_id)
        chain = [run_id async for run_id in runs.chain((await system.workflow("all").describe()).run_id)]
        assert len(chain) == 3
        before = await shown(system, "all")
        async with verifying(system, database_url) as verifier:
            for oldest in reversed(chain[1:]):
                await runs.delete(oldest)
                await system.until(partial(_gone, runs, oldest))
                kept = await verifier.verify(ref)
                assert (kept.state, told(kept)) == ("same", []), told(kept)
                assert len(kept.notes) == 1 and "is in no retained history: it is kept" in kept.notes[0]
            later = Damage("", "update messages set content = 'x' where session_uid = $1 and content = 'and wait'", "")
            earlier = Damage("", "update messages set content = 'x' where session_uid = $1 and content = 'do it'", "")
            await do(system.conn, later, ref.session_uid)
            assert (await verifier.rebuild(ref)).state == "rebuilt"
            assert await shown(system, "all") == before
            await do(system.conn, earlier, ref.session_uid)
            assert (await verifier.rebuild(ref)).state == "same"
            await do(system.conn, DAMAGES[7], ref.session_uid)
            wrong = await verifier.rebuild(ref)
            assert wrong.state == "differs" and any("no history says otherwise" in note for note in wrong.notes)


async def _two_lives(runs: Runs) -> bool:
    """Once the list has the first one."""
    return len(await runs.all()) == 2


async def _gone(runs: Runs, run_id: str) -> bool:
    return not await runs.is_there(run_id)


async def test_r69_lost_events_end_the_stream_behind_them_and_a_live_turn_is_left_alone(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifying_again, "PAUSE_SECONDS", 0.02)
    go_on = asyncio.Event()
    async with running_system(
        database_url, temporal_address, script(says("Hello."), says("Again."), waits(go_on, "Wait", "ed."))
    ) as system:
        await system.chat("s1", "one")
        await system.chat("s1", "two")
        ref = await session_of(system, "s1")
        cursor = await system.conn.fetchval("select cursor from sessions")
        async with verifying(system, database_url) as verifier:
            await do(system.conn, Damage("", "delete from events where session_uid = $1 and seq = 3", ""), ref.session_uid)
            assert [one.what for one in (await verifier.verify(ref)).differences] == ["gap in the events"]
            rebuilt = await verifier.rebuild(ref)
            assert rebuilt.state == "rebuilt" and len(rebuilt.notes) == 1
            first = await system.conn.fetchrow("select seq, type from events order by seq limit 1")
            assert (
                first is not None
                and first["type"] == "turn.started"
                and await system.conn.fetchval("select events_from from sessions") == first["seq"] - 1
            )
            assert await system.conn.fetchval("select cursor from sessions") == cursor
            assert (await verifier.verify(ref)).state == "same"
            await system.submit("s1", "three")
            await system.streaming()
            assert (await verifier.verify(ref)).state == (await verifier.rebuild(ref)).state == "busy"
            go_on.set()
            await system.until(lambda: system.conn.fetchval("select true from turns where number = 3 and state = 'completed'"))
            await rolled(system, "s1")
            assert (await verifier.verify(ref)).state == "same"


async def test_r69_a_session_whose_workflow_was_ended_in_the_middle_of_a_step_is_said_to_be(
    database_url: str, temporal_address: str
) -> None:
    go_on = asyncio.Event()
    scripted = script(says("Hello."), waits(go_on, "Wait", "ed."), says("Again."))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", "one")
        ref = await session_of(system, "s1")
        await system.submit("s1", "two")
        await system.streaming()
        await system.workflow("s1").terminate("by hand")
        async with verifying(system, database_url) as verifier:
            for look in (verifier.verify, verifier.rebuild):
                verdict = await look(ref)
                assert (verdict.state, verdict.notes) == ("busy", [verifying_again.CUT_SHORT.format(how="terminated")])
            go_on.set()
            await system.until(lambda: system.conn.fetchval("select true from turns where number = 2 and state = 'completed'"))
            await system.chat("s1", "three")
            await rolled(system, "s1")
            verdict = await verifier.verify(ref)
            assert (verdict.state, len(verdict.notes)) == ("same", 1), verdict
            assert "up to turn 2" in verdict.notes[0]


async def test_r69_steering_and_a_title_that_came_while_the_first_turns_step_was_lost_are_derived(
    database_url: str, temporal_address: str
) -> None:
    between, go_on = Between(), asyncio.Event()
    between.after = losing(lambda name, _: name == "run_step")
    scripted = script(waits(go_on, "Wait", "ed."), says("With advice."))
    async with running_system(database_url, temporal_address, scripted, interceptors=[between]) as system:
        await system.submit("s1", "one")
        await system.streaming()
        await steer(system, "s1", "be brief")
        assert (await system.http.patch("/api/sessions/s1", json={"title": "A title"})).status_code == 200
        go_on.set()
        await system.until(lambda: system.conn.fetchval("select true from turns where state <> 'running'"))
        between.after = Between().after
        await system.chat("s1", "two")
        ref = await session_of(system, "s1")
        async with verifying(system, database_url) as verifier:
            verdict = await verifier.verify(ref)
            assert (verdict.state, told(verdict), verdict.notes) == ("same", [], [])


async def test_r69_r148_steering_noted_side_by_side_keeps_the_order_in_which_it_was_accepted(
    database_url: str, temporal_address: str
) -> None:
    between, go_on, go_on_again = Between(), asyncio.Event(), asyncio.Event()
    held = {"late": asyncio.Event(), "first": asyncio.Event()}

    async def before(name: str, asked: Any) -> None:
        if name == "note_steering" and asked.content in held:
            await held[asked.content].wait()

    between.before = before
    scripted = script(waits(go_on, "Wait", "ed. "), waits(go_on_again, "Wait", "ed again. "), says("With advice."))
    async with running_system(database_url, temporal_address, scripted, interceptors=[between]) as system:
        await system.submit("s1", "one")
        await system.streaming()
        slow = []
        for words in held:
            slow.append(asyncio.create_task(steer(system, "s1", words)))
            await system.until(partial(_asked_to_note, system, len(slow)))
        await steer(system, "s1", "second")
        held["first"].set()
        await slow[1]
        go_on.set()
        await system.until(lambda: len(scripted.requests) == 2)
        held["late"].set()
        await slow[0]
        go_on_again.set()
        await system.until(lambda: system.conn.fetchval("select true from turns where state <> 'running'"))
        parts = (part for message in scripted.requests[-1] for part in message.parts)
        said = [part.content for part in parts if isinstance(part, UserPromptPart)]
        assert said == ["one", "first", "second", "late"], "the order of acceptance, where one step took them"
        rows = await system.conn.fetch("select id from steering order by number")
        assert [row["id"] for row in rows] == ["late", "first", "second"]
        lines = (await system.http.get("/api/sessions/s1/export", params={"format": "markdown"})).text
        assert lines.index("first") < lines.index("second") < lines.index("again. ") < lines.index("late") < lines.index("With advice.")
        ref = await session_of(system, "s1")
        async with verifying(system, database_url) as verifier:
            verdict = await verifier.verify(ref)
            assert (verdict.state, told(verdict), verdict.notes) == ("same", [], [])


async def _asked_to_note(system: System, count: int) -> bool:
    found = (await system.workflow("s1").describe()).raw_description.pending_activities
    return sum(one.activity_type.name == "note_steering" for one in found) == count


async def test_r69_a_session_is_verified_while_an_earlier_one_of_its_id_is_being_erased(database_url: str, temporal_address: str) -> None:
    between, go_on = Between(), asyncio.Event()
    between.after = until_set(go_on, "erase_payloads")
    async with running_system(database_url, temporal_address, script(says("Hello.")), interceptors=[between]) as system:
        await system.chat("s1", "long " * 40_000)
        assert (await system.http.delete("/api/sessions/s1")).status_code == 202
        await system.until(lambda: system.conn.fetchval("select true where not exists (select from payloads)"))
        await system.chat("s1", "one")
        await system.until(partial(_two_lives, Runs(system.temporal, session_workflow_id(system.tenant, "s1"))))
        ref = await session_of(system, "s1")
        async with verifying(system, database_url) as verifier:
            verdict = await verifier.verify(ref)
            go_on.set()
            assert (verdict.state, told(verdict), verdict.notes) == ("same", [], [])
