"""Worker Versioning: workers of two builds side by side, and sessions that cross from one to the other without losing anything."""

import asyncio
from contextlib import AsyncExitStack
from datetime import timedelta

import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory

from activities.db import routing
from activities.db.routing import left_behind, routing_of
from cli import suspects
from cli.doctor import check_workers
from cli.endpoints import Endpoints
from cli.stuck import Limits, run_stuck
from tests.http.builds import Builds, temporal, where
from tests.models import calls, says, script, waits
from tests.replay.changed import ChangedSession
from tests.replay.patched import PATCH, PatchedSession
from tests.replay.test_histories import replayer
from tests.system import System, running_system
from worker import WORKFLOWS, tell_routing
from workflows.erasure import ErasureWorkflow

ASKS = calls(("h1", "open_page", {"url": "a"}), ("h2", "ask_user", {"question": "b"}))
CHANGED = [ChangedSession, ErasureWorkflow]
PATCHED = [PatchedSession, ErasureWorkflow]


async def memo(system: System, session: str) -> set[str]:
    """The names of what a session's open run has in its memo."""
    return set(await (await system.workflow(session).describe()).memo())


async def parts(history: WorkflowHistory, *workflows: type) -> bool:
    """Whether a history and the code part."""
    result = await replayer(*workflows).replay_workflow(history, raise_on_replay_failure=False)
    if result.replay_failure is not None and not isinstance(result.replay_failure, workflow.NondeterminismError):
        raise result.replay_failure
    return result.replay_failure is not None


def marked(history: WorkflowHistory) -> bool:
    """Whether the patch was recorded."""
    return any(PATCH.encode() in event.marker_recorded_event_attributes.SerializeToString() for event in history.events)


async def contents(system: System, session: str) -> list[str]:
    return [row["content"] for row in await system.messages(session)]


async def told(system: System, end: str) -> bool:
    """Whether the doctor is content with the workers and what it says of them ends like that."""
    finding = await check_workers(Endpoints(system.settings, system.address, None))
    return finding.verdict == "ok" and finding.text.endswith(end)


async def none_left(system: System, deployment: str) -> bool:
    """Whether no run is on another version than new ones are. A run that just began may be listed on the one of the run before it for a moment."""
    return await left_behind(system.temporal, await routing_of(system.temporal, system.tenant), deployment) == {}


async def test_sessions_stay_on_their_build_until_they_roll_and_then_go_on_with_the_new_one(
    database_url: str, temporal_address: str
) -> None:
    builds, gate = Builds(), asyncio.Event()
    scripted = script(ASKS, waits(gate, "of the ", "old"), says("never"))
    async with AsyncExitStack() as both:
        stopping_old = await both.enter_async_context(AsyncExitStack())
        old = await stopping_old.enter_async_context(running_system(database_url, temporal_address, scripted, worker=builds.settings("1")))
        await builds.make_current(old, "1")
        await old.chat("waiting", "do it")
        living = asyncio.create_task(old.chat("living", "hello"))
        await old.until(lambda: len(old.script.requests) == 2)
        new = await both.enter_async_context(
            running_system(database_url, temporal_address, script(says("new")), like=old, workflows=CHANGED, worker=builds.settings("2"))
        )
        await builds.make_current(new, "2")

        assert (await old.chat("born", "hi"))["content"] == "new"
        gate.set()
        assert (await living)["content"] == "of the old"
        assert [(await where(new, session))[0] for session in ("waiting", "born")] == ["1", "2"]
        assert (await old.chat("living", "and now"))["content"] == "new", "it rolls after its turn, or once it is woken"
        await builds.stay(new, "1", 1)
        await new.until(lambda: told(new, f"; open runs of earlier versions: 1 on {builds.deployment}:1"))
        await builds.roll_all(new, "1")
        await builds.stay(new, "1", 0)
        await new.until(lambda: none_left(new, builds.deployment))
        await stopping_old.aclose()

        assert (await new.resume("waiting", "h1")).status_code == 200
        assert (await new.resume("waiting", "h2")).json()["content"] == "new"
        assert [(await where(new, session))[0] for session in ("waiting", "living", "born")] == ["2", "2", "2"]
        assert await contents(new, "waiting") == ["do it", "new"]
        assert await contents(new, "living") == ["hello", "of the old", "and now", "new"]
        assert {"hasty", "session_uid"} <= await memo(new, "waiting"), "what the new code does, it does"

        before, after = await new.histories("waiting")
        assert (await parts(before, *WORKFLOWS), await parts(before, *CHANGED)) == (False, True)
        assert (await parts(after, *WORKFLOWS), await parts(after, *CHANGED)) == (True, False)


async def test_where_every_change_is_patched_sessions_cross_in_the_middle_of_a_run(database_url: str, temporal_address: str) -> None:
    """What a run did the old way it goes on doing the old way; what it has not come to yet it does the new way."""
    builds = Builds()
    async with AsyncExitStack() as both:
        stopping_old = await both.enter_async_context(AsyncExitStack())
        old = await stopping_old.enter_async_context(
            running_system(database_url, temporal_address, script(ASKS), worker=builds.settings("1", "auto_upgrade"))
        )
        await builds.make_current(old, "1")
        for session in ("fresh", "midway"):
            await old.chat(session, "do it")
        await old.resume("midway", "h1")
        runs = [(await where(old, session))[1] for session in ("fresh", "midway")]
        new = await both.enter_async_context(
            running_system(
                database_url,
                temporal_address,
                script(says("new"), calls(("h3", "open_page", {"url": "c"}))),
                like=old,
                workflows=PATCHED,
                worker=builds.settings("2", "auto_upgrade"),
            )
        )
        await builds.make_current(new, "2")
        await stopping_old.aclose()

        await new.resume("fresh", "h1")
        assert (await new.resume("midway", "h2")).json()["content"] == "new"
        assert [await where(new, session) for session in ("fresh", "midway")] == [("2", runs[0]), ("2", runs[1])]
        assert ("noted" in await memo(new, "fresh"), "noted" in await memo(new, "midway")) == (True, False)
        assert await contents(new, "midway") == ["do it", "new"]
        (fresh,), (midway,) = await new.histories("fresh"), await new.histories("midway")
        assert (marked(fresh), marked(midway)) == (True, False)
        assert not await parts(fresh, *PATCHED) and not await parts(midway, *PATCHED)
        assert await parts(fresh, *WORKFLOWS), "a build from before the patch can't take it back"

        await new.workflow("midway").signal("roll")
        await new.chat("midway", "again")
        assert (await new.resume("midway", "h3")).status_code == 200
        assert "noted" in await memo(new, "midway"), "the next run knows no old way"


async def test_a_release_is_taken_back_and_a_build_without_workers_is_left(database_url: str, temporal_address: str) -> None:
    builds = Builds()
    async with AsyncExitStack() as both:
        old = await both.enter_async_context(
            running_system(database_url, temporal_address, script(says("old")), worker=builds.settings("1"))
        )
        await builds.make_current(old, "1")
        await old.chat("s1", "one")
        async with running_system(database_url, temporal_address, script(says("new")), like=old, worker=builds.settings("2")) as new:
            await builds.make_current(new, "2")
            assert (await old.chat("s1", "two"))["content"] == "new"
            assert (await old.chat("s2", "one"))["content"] == "new"
            await builds.make_current(new, "1")
            assert (await old.chat("s1", "three"))["content"] == "old"
        assert await contents(old, "s1") == ["one", "old", "two", "new", "three", "old"]

        await old.workflow("s2").signal("roll")  # nobody hears it: its build has no worker any more
        asked = f"TemporalWorkerDeploymentVersion = '{builds.deployment}:2' AND ExecutionStatus = 'Running'"
        await builds.stay(old, "2", 1)
        moved = ("--versioning-override-behavior", "one_time", "--versioning-override-deployment-name", builds.deployment)
        code, said = await temporal(
            old, "workflow", "update-options", "--query", asked, *moved, "--versioning-override-build-id", "1", "--yes"
        )
        assert code == 0, said
        assert (await old.chat("s2", "two"))["content"] == "old"
        assert (await where(old, "s2"))[0] == "1"
        assert len(await old.histories("s2")) == 2, "the signal was heard where it arrived"


async def test_who_would_serve_new_sessions_is_said_before_somebody_waits(
    database_url: str, temporal_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    builds = Builds()
    async with running_system(database_url, temporal_address, script(says("x")), worker=builds.settings("1")) as system:
        found = Endpoints(system.settings, temporal_address, None)

        async def missing() -> bool:
            answer = await system.http.get("/health/ready")
            return answer.status_code == 503 and f"only workers of {builds.deployment}:1 ask for work" in answer.json()["detail"]

        await system.until(missing)
        finding = await check_workers(found)
        assert finding.verdict == "warn"
        assert f"set-current-version --deployment-name {builds.deployment} --build-id 1" in finding.text
        await tell_routing(system.temporal, system.settings)
        assert f"workers of {builds.deployment}:1 get them after `temporal worker deployment set-current-version" in caplog.text
        caplog.clear()
        await builds.make_current(system, "1")
        await tell_routing(system.temporal, system.settings)
        assert "set-current-version" not in caplog.text

        async def ready() -> bool:
            return (await system.http.get("/health/ready")).status_code == 200

        await system.until(ready)
        assert (await check_workers(found)).verdict == "ok"


async def test_signals_that_no_worker_takes_are_listed_though_their_sessions_rest(
    database_url: str, temporal_address: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TEMPORAL_ADDRESS", temporal_address)
    builds, now = Builds(), Limits(2, timedelta(seconds=0))
    async with running_system(database_url, temporal_address, script(says("old"), ASKS), worker=builds.settings("1")) as system:
        await builds.make_current(system, "1")
        await system.chat("idle")
        async with running_system(database_url, temporal_address, script(ASKS), like=system, worker=builds.settings("2")) as other:
            await builds.make_current(other, "2")
            await other.chat("pinned")
            await builds.make_current(system, "1")
        await builds.stay(system, "2", 1)
        await builds.stay(system, "1", 1)
        await system.until(lambda: run_stuck(system.settings, now))
        capsys.readouterr()

        async def listed(*sessions: str) -> bool:
            calm = await run_stuck(system.settings, now)
            lines = capsys.readouterr().out.splitlines()
            waiting = {f"{system.workflow(session).id}  workflow task  waits for a worker since" for session in sessions}
            return not calm and {line[: line.index(" since") + 6] for line in lines[:-1]} == waiting and " at rest looked at" in lines[-1]

        await system.workflow("pinned").signal("roll")  # its worker has just gone, and counts as asking for work
        await system.until(lambda: listed("pinned"))
        with monkeypatch.context() as later:
            later.setattr(routing, "POLLED_WITHIN", timedelta(seconds=-60))  # when no worker counts as asking for work
            await system.until(lambda: listed("pinned"))
        await nobody_is_current(system, builds)
        await system.workflow("idle").signal("roll")
        await system.until(lambda: listed("pinned", "idle"))
        with monkeypatch.context() as few:
            few.setattr(suspects, "MOST", 1)
            assert not await run_stuck(system.settings, now)
        out, err = capsys.readouterr()
        assert out.endswith("1 session at rest looked at\n") and "sessions at rest that are looked at: 1, " in err, (out, err)


async def nobody_is_current(system: System, builds: Builds) -> None:
    """Makes a build current that has no workers, with a ramp to one that has, and sees the doctor say so."""
    deployment = ("--deployment-name", builds.deployment, "--yes", "--build-id")
    for way in (
        ("set-current-version", *deployment, "ghost", "--ignore-missing-task-queues", "--allow-no-pollers"),
        ("set-ramping-version", *deployment, "1", "--percentage", "50"),
        ("set-ramping-version", *deployment, "1", "--percentage", "0"),
    ):
        code, said = await temporal(system, "worker", "deployment", *way)
        assert code == 0, said
        if "50" in way:
            await system.until(lambda: ramped(system, f"workers of {builds.deployment}:1 get 50 % of the sessions"))


async def ramped(system: System, words: str) -> bool:
    finding = await check_workers(Endpoints(system.settings, system.address, None))
    return finding.verdict == "warn" and words in finding.text
