"""Postgres and Temporal that stop, stand still and come back in the middle of a turn."""

import signal
import time

import pytest

from cli.services.postgres import PostgresServer
from cli.services.temporal import TemporalServer
from tests.chaos.processes import Programs
from tests.chaos.stand import standing, until
from tests.provider import call, says


@pytest.mark.parametrize("how", ["stopped", "frozen"])
async def test_r18_r15_a_turn_waits_for_postgres_and_goes_on_with_its_whole_history(
    programs: Programs, own_postgres: PostgresServer, own_temporal: TemporalServer, how: str
) -> None:
    async with standing(
        programs, own_postgres, own_temporal, says("Hi."), says(calls=[call("note", {"seconds": 1})]), says("Noted.")
    ) as stand:
        await stand.worker(OUTLAST_DATABASE__TIMEOUT_SECONDS="2")
        await stand.chat("the first message")
        accepted = await stand.submit("the second message")
        await until(lambda: stand.effects["c1"])
        if how == "stopped":
            own_postgres.stop()
        else:
            own_postgres.signal(signal.SIGSTOP)
        asked = time.monotonic()
        answer = await stand.http.get("/api/sessions/s1")
        assert (answer.status_code, answer.json()["code"]) == (503, "database_unavailable")
        assert "retry-after" in answer.headers
        assert time.monotonic() - asked < 30
        if how == "stopped":
            own_postgres.start()
        else:
            own_postgres.signal(signal.SIGCONT)
        assert await stand.ended(accepted["turn_id"]) == "completed"
        assert [row["content"] for row in await stand.messages()] == ["the first message", "Hi.", "the second message", "Noted."]
        assert dict(stand.effects) == {"c1": 1}
        assert len(stand.provider.requests) == 3
        sent = [part["content"] for part in stand.provider.requests[-1].body["messages"] if part["role"] in ("user", "assistant")]
        assert [text for text in sent if text] == ["the first message", "Hi.", "the second message"]


async def test_a_turn_outlives_temporal_and_writes_are_refused_meanwhile(
    programs: Programs, own_postgres: PostgresServer, own_temporal: TemporalServer
) -> None:
    slow = {"stream": [{"text": "Slow "}, {"pause": 2}, {"text": "but sure."}]}
    async with standing(programs, own_postgres, own_temporal, slow) as stand:
        await stand.worker()
        accepted = await stand.submit()
        await until(lambda: stand.row("select true from live_deltas"))
        own_temporal.signal(signal.SIGKILL)
        assert (await stand.messages())[0]["content"] == "hello"
        refused = await stand.http.post("/api/chat", json={"session_id": "s2", "content": "x", "id": "m1"})
        assert (refused.status_code, refused.json()["code"]) == (503, "temporal_unavailable")
        assert "retry-after" in refused.headers
        own_temporal.start()
        assert await stand.ended(accepted["turn_id"]) == "completed"
        assert (await stand.messages())[1]["content"] == "Slow but sure."
        assert (await stand.chat("again"))["content"] == "Slow but sure."
        assert len(stand.provider.requests) == 2
