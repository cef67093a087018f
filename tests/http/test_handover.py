"""A batch that is handed over all at once."""

from itertools import permutations
from typing import Any

import pytest

from tests.http.test_host_actions import ids, refused, tools
from tests.models import calls, raises, says, script
from tests.system import running_system

THREE = calls(*((f"c{number}", "open_page", {"url": f"u{number}"}) for number in range(1, 4)))


def asked_for(turn: dict[str, Any]) -> list[str]:
    pending = turn["pending_tool_call"]
    return [pending["call_id"], *ids(pending["queued"])] if pending else []


@pytest.mark.parametrize("order", list(permutations(("c1", "c2", "c3")))[1:])
async def test_r126_all_at_once_results_come_in_any_order(database_url: str, temporal_address: str, order: tuple[str, ...]) -> None:
    scripted = script(THREE, says("all done"))
    async with running_system(database_url, temporal_address, scripted, apis=2) as system:
        first = await system.chat("s1", config={"handover": "all"})
        assert asked_for(first) == ["c1", "c2", "c3"]
        waiting = ["c1", "c2", "c3"]
        for number, call in enumerate(order):
            answer = (
                await system.post("/chat", {"session_id": "s1", "tool_call_id": call, "tool_result": {"of": call}}, api=number % 2)
            ).json()
            waiting.remove(call)
            assert answer["error"] is None and asked_for(answer) == waiting
            assert refused(await system.resume("s1", call), "already_recorded", "completed")
            assert len(scripted.requests) == (1 if waiting else 2)
            assert answer["turn_number"] == number + 2 and answer["message_id"] == first["message_id"]
        assert [(part.tool_call_id, part.content) for part in scripted.results()] == [(f"c{n}", f'{{"of":"c{n}"}}') for n in (1, 2, 3)]
        assert (await system.get("/sessions/s1"))["status"] == "idle"


async def test_r126_a_profile_hands_all_over_unless_the_message_says_otherwise(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(THREE, THREE, says("x")), profile="patient") as system:
        await system.chat("s1")
        assert (await system.resume("s1", "c3")).status_code == 200
        await system.chat("s2", config={"handover": "one"})
        assert refused(await system.resume("s2", "c3"), "call_mismatch")


async def test_r107_all_at_once_survives_a_restart(database_url: str, temporal_address: str) -> None:
    scripted = script(THREE, says("all done"))
    async with running_system(database_url, temporal_address, scripted, profile="patient") as system:
        await system.chat("s1")
        await system.resume("s1", "c2", tool_outcome="denied")
        await system.workflow("s1").terminate("gone")
    async with running_system(database_url, temporal_address, scripted, like=system, profile="patient") as system:
        assert refused(await system.resume("s1", "c2"), "already_recorded", "denied")
        assert asked_for((await system.resume("s1", "c3")).json()) == ["c1"]
        assert (await system.resume("s1", "c1")).json()["content"] == "all done"
        assert [part.outcome for part in scripted.results()] == ["success", "denied", "success"]


async def test_r129_deadlines_of_all_run_at_once(database_url: str, temporal_address: str) -> None:
    parameters = {"type": "object", "properties": {}}
    actions = [{"name": f"act{number}", "parameters": parameters, "deadline_seconds": 1.0 + number} for number in range(2)]
    scripted = script(calls(("c1", "act0", {}), ("c2", "act1", {})), says("never mind"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1", host_context={"version": 1, "actions": actions}, config={"handover": "all"})

        async def over() -> bool:
            return len(scripted.requests) == 2 and (await system.get("/sessions/s1"))["status"] == "idle"

        await system.until(over)
        assert {tool["status"] for tool in (await tools(system, "s1")).values()} == {"unknown"}


async def test_r127_the_last_result_stays_when_its_step_fails(database_url: str, temporal_address: str) -> None:
    scripted = script(THREE, raises(RuntimeError("x")), says("all done"))
    async with running_system(database_url, temporal_address, scripted, profile="patient") as system:
        await system.chat("s1")
        for call in ("c3", "c1"):
            await system.resume("s1", call)
        failed = (await system.resume("s1", "c2")).json()
        assert failed["error"]["type"] == "internal"
        assert refused(await system.resume("s1", "c2"), "already_recorded", "completed")
        again = await system.post(f"/sessions/s1/turns/{failed['turn_id']}/retry")
        assert again.json()["content"] == "all done"
        assert len(scripted.results()) == 3
