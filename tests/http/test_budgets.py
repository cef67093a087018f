"""Limits: what a request may lower, what ends a turn, what keeps one from beginning."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import httpx
import pytest
from temporalio.service import RPCError

from settings import BudgetSettings, LimitSettings
from tests.http.seeding import insert
from tests.models import calls, says, script
from tests.system import Answer, System, running_system
from workflows.contracts.inputs import MessageInput

pytestmark = pytest.mark.usefixtures("one_day")


def day(**limits: float) -> BudgetSettings:
    return BudgetSettings(day=LimitSettings(**limits))


async def ledger(system: System, principal: str, *, hours_ago: float = 0.0, cost: str | None = None, tokens: int = 0) -> None:
    """A model request that the principal paid for."""
    await insert(
        system.conn,
        "usage_ledger",
        session_uid="00000000-0000-4000-8000-0000000000aa",
        turn_id=f"t-{principal}-{hours_ago}-{cost}-{tokens}",
        attempt=1,
        step=1,
        tenant=system.tenant,
        principal=principal,
        model="m",
        input_tokens=tokens,
        output_tokens=0,
        cost_usd=Decimal(cost) if cost else None,
        at=datetime.now(UTC) - timedelta(hours=hours_ago),
    )


def over(answer: httpx.Response) -> bool:
    """429 as a problem, until the day (UTC) is over."""
    assert answer.headers["content-type"] == "application/problem+json"
    now = datetime.now(UTC)
    left = 86400 - (now - now.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds()
    assert abs(int(answer.headers["retry-after"]) - left) < 60
    return (answer.status_code, answer.json()["code"]) == (429, "usage_limit")


async def count(system: System, table: str) -> int:
    number: int = await system.conn.fetchval(f"select count(*) from {table}")
    return number


async def test_s74_over_the_days_budget_nothing_is_begun(database_url: str, temporal_address: str) -> None:
    scripted = script(says("hi"))
    async with running_system(database_url, temporal_address, scripted, budget=day(max_requests=2)) as system:
        for _ in range(2):
            assert (await system.chat("s1"))["error"] is None
        before = (await system.get("/sessions/s1"))["revision"], await count(system, "messages"), len(await system.events("s1"))
        for path in ("/chat", "/chat?wait=false", "/chat/stream"):
            for session in ("s1", "s2"):
                assert over(await system.post(path, {"session_id": session, "content": "more"}))
        assert len(scripted.requests) == 2
        after = (await system.get("/sessions/s1"))["revision"], await count(system, "messages"), len(await system.events("s1"))
        assert after == before
        assert await count(system, "sessions") == 1
        with pytest.raises(RPCError, match="not found"):
            await system.workflow("s2").describe()
        other = await system.post("/chat", {"session_id": "s3", "content": "x"}, headers={"x-test-principal": "ann"})
        assert other.status_code == 200


async def test_s74_the_first_answer_is_repeated_at_any_time(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("hi")), budget=day(max_requests=1)) as system:
        first = await system.chat("s1", id="m1")
        assert await system.chat("s1", id="m1") == first


@pytest.mark.parametrize(
    ("limits", "spent"),
    [
        ({"max_input_tokens": 500}, {"tokens": 500}),
        ({"max_total_tokens": 500}, {"tokens": 700}),
        ({"max_cost_usd": 0.3}, {"cost": "0.3"}),
    ],
)
async def test_s74_each_limit_counts_today_and_only_ones_own(
    database_url: str, temporal_address: str, limits: dict[str, float], spent: dict[str, Any]
) -> None:
    async with running_system(database_url, temporal_address, budget=day(**limits)) as system:
        await ledger(system, "local", hours_ago=24, **spent)
        await ledger(system, "ann", **spent)
        assert (await system.chat("s1"))["error"] is None
        await ledger(system, "local", **spent)
        assert over(await system.post("/chat", {"session_id": "s1", "content": "x"}))


async def test_s76_a_result_and_a_retry_are_held_to_it_too(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), says("done"))
    async with running_system(database_url, temporal_address, scripted, budget=day(max_cost_usd=1)) as system:
        await system.chat("s1")
        await ledger(system, "local", cost="1.5")
        assert over(await system.resume("s1", "c1"))
        assert (await system.get("/sessions/s1"))["pending_action"]["tool_call_id"] == "c1"
        assert len(scripted.requests) == 1
        await system.conn.execute("delete from usage_ledger where cost_usd is not null")
        assert (await system.resume("s1", "c1")).json()["content"] == "done"
        resent = await system.resume("s1", "c1")
        assert resent.json()["code"] == "already_recorded"


async def test_s76_who_owns_the_session_pays(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, budget=day(max_cost_usd=1)) as system:
        ann = {"x-test-principal": "ann"}
        assert (await system.post("/chat", {"session_id": "s1", "content": "x"}, headers=ann)).status_code == 200
        await ledger(system, "ann", cost="1")
        assert over(await system.post("/chat", {"session_id": "s1", "content": "an admin's"}))
        assert (await system.chat("s2"))["error"] is None


async def test_r85_the_days_budget_ends_a_turn_in_the_middle(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "add", {"a": 1, "b": 2}), text="So far. "), says("never"))
    async with running_system(database_url, temporal_address, scripted, budget=day(max_requests=1)) as system:
        turn = await system.chat("s1")
        await cut(system, "s1", turn, "So far. ", retried="usage_limit")
        assert "day" in turn["error"]["message"]
        await system.workflow("s1").signal("message", MessageInput(tenant=system.tenant, id="m2", content="past the api"))

        async def ended() -> bool:
            rows = await system.messages("s1")
            return len(rows) == 4 and rows[-1]["error"] is not None

        await system.until(ended)
        assert (await system.messages("s1"))[-1]["error"]["type"] == "usage_limit"
        assert len(scripted.requests) == 1
        await system.conn.execute("delete from usage_ledger")
        scripted.then(says("On we go."))
        assert (await system.chat("s1"))["content"] == "On we go."


async def cut(system: System, session: str, turn: Answer, text: str, retried: str = "not_retryable") -> None:
    """A turn at its limit: text and finished tools are kept, and it can't be retried."""
    assert (turn["error"]["type"], turn["error"]["retry_allowed"], turn["content"]) == ("usage_limit", False, text)
    types = [event["type"] for event in await system.events(session) if event["turn_id"] == turn["turn_id"]]
    assert types[-3:] == ["turn.final", "turn.error", "turn.completed"]
    row = next(row for row in await system.messages(session) if row["id"] == turn["message_id"])
    tools = [tool for segment in row["segments"] if segment["kind"] == "tool_group" for tool in segment["tools"]]
    assert tools and all(tool["output"] == 3 and "outcome" not in tool for tool in tools)
    retry = await system.post(f"/sessions/{session}/turns/{turn['turn_id']}/retry")
    assert retry.json()["code"] == retried


LOOP: tuple[tuple[str, dict[str, float]], ...] = (
    ("config", {"max_requests": 2}),
    ("config", {"max_input_tokens": 80}),
    ("config", {"max_total_tokens": 80}),
    ("settings", {}),
)


@pytest.mark.parametrize(("where", "budget"), LOOP, ids=range(len(LOOP)))
async def test_r85_a_turns_budget_ends_it_with_what_it_had(
    database_url: str, temporal_address: str, where: str, budget: dict[str, float]
) -> None:
    """The scripted model counts 50 input tokens a request."""
    number = iter(range(1, 9))

    async def one_more() -> AsyncIterator[object]:
        async for piece in calls((f"c{next(number)}", "add", {"a": 1, "b": 2}), text="Step. ")():
            yield piece

    scripted = script(one_more)
    settings = BudgetSettings(turn=LimitSettings(max_requests=2 if where == "settings" else 5))
    async with running_system(database_url, temporal_address, scripted, budget=settings) as system:
        asked: dict[str, Any] = {"config": {"budget": budget or {"max_requests": 50}, "max_steps": 50}}
        turn = await system.chat("s1", **asked)
        await cut(system, "s1", turn, "Step. Step. ")
        assert len(scripted.requests) == 2
        scripted.then(says("On we go."))
        assert (await system.chat("s1"))["content"] == "On we go."


async def test_r85_a_profiles_budget_and_steps_hold_for_every_message(database_url: str, temporal_address: str) -> None:
    number = iter(range(1, 9))

    async def one_more() -> AsyncIterator[object]:
        async for piece in calls((f"c{next(number)}", "add", {"a": 1, "b": 2}), text="Step. ")():
            yield piece

    scripted = script(one_more)
    async with running_system(database_url, temporal_address, scripted, profile="thrifty", max_steps=3) as system:
        await cut(system, "s1", await system.chat("s1", config={"budget": {"max_requests": 9}}), "Step. ")
        turn = await system.chat("s2", profile="assistant", config={"max_steps": 9})
        assert (turn["error"]["type"], turn["content"]) == ("usage_limit", "Step. Step. Step. ")
