"""`outlast replay --from-server` while a session is being erased: its payloads go before its histories do."""

import asyncio

from tests.commands import ran
from tests.models import says, script
from tests.replay.telling import Between, until_set
from tests.system import System, running_system

LONG = "long " * 60_000


async def test_a_run_whose_session_is_being_erased_is_no_difference_and_a_payload_that_another_lost_is_a_failure(
    database_url: str, temporal_address: str
) -> None:
    between, go_on = Between(), asyncio.Event()
    between.after = until_set(go_on, "erase_payloads")
    async with running_system(
        database_url, temporal_address, script(says("One."), says("Two."), says("Three.")), interceptors=[between]
    ) as system:
        await system.chat("erased", LONG)
        assert (await system.http.delete("/api/sessions/erased")).status_code == 202
        await system.until(lambda: system.conn.fetchval("select true where not exists (select from payloads)"))
        code, out, err = await _replayed(system, database_url, ["erased"], 1)
        assert code == 1 and "nothing was proven" in err and "erased: SessionWorkflow" in out, (
            "alone it proves nothing, as a run without a task"
        )
        await system.chat("erased", "begun anew")
        code, out, err = await _replayed(system, database_url, ["erased"], 2)
        assert (code, err) == (0, ""), out
        assert out.count("erased: SessionWorkflow ") == 1 and "its session was erased, and its payloads are gone" in out
        (row,) = (line.split() for line in out.splitlines() if line.strip().startswith("SessionWorkflow "))
        assert (row[1], *row[3:]) == ("2", "1", "0", "1", "0", "0", "0"), out
        await system.chat("lost", LONG)
        await system.conn.execute("delete from payloads")
        code, out, err = await _replayed(system, database_url, ["erased", "lost"], 3)
        assert (code, err) == (1, "") and "is not stored any more" in out
        assert out.count("erased: SessionWorkflow ") == 1 and f"failed: SessionWorkflow {system.workflow('lost').id} run " in out, out
        go_on.set()


async def _replayed(system: System, url: str, names: list[str], runs: int) -> tuple[int | None, str, str]:
    """What the command says of sessions, once the server lists so many runs of them."""
    query = " OR ".join(f"WorkflowId = '{system.workflow(name).id}'" for name in names)

    async def listed() -> bool:
        return (await system.temporal.count_workflows(query)).count == runs

    await system.until(listed)
    where = {"TEMPORAL_ADDRESS": system.address, "OUTLAST_DATABASE__URL": url}
    return await ran("replay", "--from-server", "--query", query, at=where)
