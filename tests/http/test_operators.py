"""What an operator finds in Temporal: sessions by what they wait for, and what each one is about."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic_ai.exceptions import ModelHTTPError
from temporalio.client import Client

from cli.stuck import Limits, run_stuck
from tests.models import calls, raises, says, script
from tests.replay.telling import Between, failing
from tests.system import System, running_system
from worker import flow_digest
from workflows.contracts.search_attributes import PENDING_TOOL, PROFILE, STATUS, TURN, WAITING_SINCE


async def seen(system: System, session: str) -> Any:
    """The session's entry in the list of workflows, once it shows its newest turn."""
    number = (await system.get(f"/sessions/{session}"))["turn_number"]

    async def entry() -> Any:
        found = await system.workflow(session).describe()
        return found if found.typed_search_attributes.get(TURN) == number else None

    return await system.until(entry)


async def listed(client: Client, query: str) -> list[str]:
    return [run.id async for run in client.list_workflows(query)]


async def test_sessions_are_found_by_what_they_wait_for_and_since_when(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"}), ("c2", "ask_user", {"question": "q"})), says("Thanks."))
    async with running_system(database_url, temporal_address, scripted) as system:
        before = datetime.now(UTC)
        await system.chat("s1")
        waiting = (await seen(system, "s1")).typed_search_attributes
        assert (waiting[STATUS], waiting[PROFILE], waiting[PENDING_TOOL]) == ("waiting_host", "assistant", "open_page")
        assert before - timedelta(seconds=1) <= waiting[WAITING_SINCE] <= datetime.now(UTC)
        query = f"OutlastTenant = '{system.tenant}' AND OutlastPendingTool = 'open_page' AND OutlastWaitingSince < '{datetime.now(UTC).isoformat()}'"
        ours = [system.workflow("s1").id]

        async def found() -> bool:
            return await listed(system.temporal, query) == ours

        await system.until(found)
        await system.resume("s1", "c1")
        assert (await seen(system, "s1")).typed_search_attributes[PENDING_TOOL] == "ask_user"
        await system.resume("s1", "c2")
        idle = (await seen(system, "s1")).typed_search_attributes
        assert (idle[STATUS], idle.get(PENDING_TOOL), idle.get(WAITING_SINCE)) == ("idle", None, None)
        described = await system.workflow("s1").describe()
        assert f"unversioned:{flow_digest()}" in described.search_attributes["BuildIds"], "which code decided is on record"
        assert await described.static_summary() == f"conversation of local, tenant {system.tenant}"


async def test_current_details_say_what_is_waited_for_and_how_the_last_turn_ended(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"}), ("c2", "ask_user", {"question": "q"})), raises(ValueError("bad")))

    async with running_system(database_url, temporal_address, scripted) as system:

        async def details(word: str) -> Any:
            shown = await system.workflow("s1").query("__temporal_workflow_metadata")
            text: str = shown.current_details
            return text if word in text else None

        await system.chat("s1")
        text = await system.until(lambda: details("waiting_host"))
        assert "**waiting_host**, turn 1, profile `assistant`" in text and "to do `open_page` and 1 more, since 20" in text
        await system.chat("s1", "never mind")
        text = await system.until(lambda: details("idle"))
        assert "**idle**, turn 2, profile `assistant`\n\n- " in text and "the last turn ended with `internal`" in text


async def test_what_is_tried_again_and_again_is_listed_with_its_step_and_its_last_failure(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    scripted = script(says("hello"), raises(ModelHTTPError(429, "scripted", {"message": "slow down"})))
    async with running_system(database_url, temporal_address, scripted, model_retry_seconds=120) as system:
        settings, twice = system.settings, Limits(2, timedelta(seconds=0))
        await system.chat("s1")
        assert await run_stuck(settings, twice)
        assert capsys.readouterr().out.startswith("0 stuck, ")
        await system.submit("s1", "again")

        async def told() -> str | None:
            calm = await run_stuck(settings, twice)
            text = capsys.readouterr().out
            return None if calm else text

        line, total = (await system.until(told)).splitlines()
        assert re.match(rf"{re.escape(system.workflow('s1').id)}  run_step \(step 1\) since 20\d\d-\d\d-\d\d ", line), line
        assert "  attempt 2, rate_limit: the provider's rate limit was reached (HTTP 429), next at 20" in line
        assert total == "1 stuck, 1 workflow with work looked at"
        assert await run_stuck(settings, Limits(3, timedelta(seconds=0)))


async def test_an_erasure_that_waits_as_all_do_is_not_stuck(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        young = "insert into payloads (key, workflow_id, body, created_at) values (gen_random_uuid(), $1, 'x', now())"
        await system.conn.execute(young, system.workflow("s1").id)
        erasure = (await system.http.delete("/api/sessions/s1")).json()["erasure_id"]
        await system.chat("s1", "anew")

        async def waits() -> bool:
            described = await system.temporal.get_workflow_handle(f"erasure/{erasure}").describe()
            return any(pending.attempt > 2 for pending in described.raw_description.pending_activities)

        await system.until(waits)
        await system.listed(f"erasure/{erasure}")
        assert await run_stuck(system.settings, Limits(2, timedelta(seconds=60)))
        monkeypatch.setattr("cli.stuck.ERASURE_PATIENCE", timedelta(0))
        assert not await run_stuck(system.settings, Limits(2, timedelta(seconds=60)))
        assert ", StillThere: " in capsys.readouterr().out


async def test_only_an_erasures_look_is_given_an_erasures_patience_whatever_a_failure_says(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    between = Between()
    between.after = failing("run_step", "lost, StillThere: are only its words")
    async with running_system(database_url, temporal_address, script(says("hello")), interceptors=[between]) as system:
        await system.submit("s1")

        async def told() -> bool:
            return not await run_stuck(system.settings, Limits(2, timedelta(seconds=60)))

        await system.until(told)
        assert ", Lost: lost, StillThere: are only its words" in capsys.readouterr().out
        between.after = Between().after
        await system.idle("s1", 1)
