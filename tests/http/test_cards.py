"""Host cards over HTTP, with everything real but the model."""

import asyncio
from typing import Any

import pytest

from api.sending import Workflows
from api.write_bodies import CardBody
from tests.models import calls, hangs, says, script
from tests.system import Answer, System, running_system
from workflows.contracts.inputs import CardInput, RowsSaid

ALICE = {"x-test-principal": "alice"}
BOB = {"x-test-principal": "bob"}
CHART = {"kind": "component", "type": "chart", "data": {"bars": [1, 2.50, None]}}
BUSY = (409, "busy")


def card(**fields: Any) -> Answer:
    return {"segments": [CHART], **fields}


async def post(system: System, session: str, body: Answer, **options: Any) -> Answer:
    answer = await system.post(f"/sessions/{session}/messages", body, **options)
    assert answer.status_code == 201, answer.text
    row: Answer = answer.json()
    return row


async def refused(system: System, session: str, body: Answer, **options: Any) -> tuple[int, str]:
    answer = await system.post(f"/sessions/{session}/messages", body, **options)
    return answer.status_code, answer.json()["code"]


async def test_r169_a_card_becomes_the_leaf_and_the_next_reply_goes_on_there(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        first = await system.chat("s1")
        row = await post(system, "s1", card(id="k1", content="Sales went up."))
        assert (row["id"], row["parent_id"], row["role"], row["content"]) == ("k1", first["message_id"], "host", "Sales went up.")
        assert row["segments"] == [CHART]
        assert row == await system.get("/sessions/s1/messages/k1")
        view = await system.get("/sessions/s1")
        assert (view["active_leaf_id"], view["revision"]) == ("k1", first["revision"] + 1)
        await system.chat("s1", "why?", id="m2")
        assert next(row for row in await system.messages("s1") if row["id"] == "m2")["parent_id"] == "k1"


async def test_r63_a_card_again_is_the_same_card(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        await system.chat("s1")
        first, second = await asyncio.gather(*(post(system, "s1", card(id="k1")) for _ in range(2)))
        assert first == second
        await system.chat("s1", "go on")
        await system.workflow("s1").terminate()
        assert await post(system, "s1", card(id="k1")) == first
        assert await refused(system, "s1", card(id="k1", content="other")) == (409, "duplicate_id")
        view = await system.get("/sessions/s1")
        assert view["active_leaf_id"] != "k1"
        # The same from who reaches the session past the api, and a session that has forgotten the id.
        asked = CardInput(id="k1", digest=CardBody(**card()).digest, segments=card()["segments"], tenant=system.tenant, roles=("admin",))
        asked = asked.model_copy(update={"rows": RowsSaid(session_uid="x"), "content": card().get("content", "")})
        receipt = await Workflows(system.temporal, system.settings.task_queue).card("s1", asked)
        assert (receipt.message_id, receipt.revision) == ("k1", view["revision"])
        assert await system.get("/sessions/s1") == view
        await system.chat("s1", "and on", expected_revision=view["revision"])


async def test_r172_no_card_while_a_turn_runs_or_the_host_is_waited_for(database_url: str, temporal_address: str) -> None:
    scripted = script(calls(("c1", "open_page", {"url": "u"})), hangs("par"))
    async with running_system(database_url, temporal_address, scripted) as system:
        await system.chat("s1")
        assert await refused(system, "s1", card()) == BUSY
        await system.submit("s1", "something else")
        await system.until(lambda: len(scripted.requests) == 2)
        assert await refused(system, "s1", card()) == BUSY
        await system.post("/sessions/s1/cancel")


async def test_r173_a_card_begins_a_session_with_owner_and_binding(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address) as system:
        row = await post(system, "s1", card(subject="anna"), headers=ALICE)
        assert (row["parent_id"], row["profile"]) == (None, "assistant")
        view = await system.get("/sessions/s1", headers=ALICE)
        assert (view["owner_id"], view["profile"], view["subject"], view["turn_number"]) == ("alice", "assistant", "anna", 0)
        assert await refused(system, "s1", card(subject="ben"), headers=ALICE) == (409, "binding_conflict")
        message = await system.post("/chat", {"session_id": "s1", "content": "x", "subject": "ben"}, headers=ALICE)
        assert message.json()["code"] == "binding_conflict"
        assert await refused(system, "s1", card(), headers=BOB) == (404, "not_found")
        answer = await system.post("/chat", {"session_id": "s1", "content": "and?", "subject": "anna"}, headers=ALICE)
        assert (answer.status_code, answer.json()["turn_number"]) == (200, 1)


async def test_s39_a_card_insists_on_a_revision(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("hello"))) as system:
        revision = (await system.chat("s1"))["revision"]
        answers = await asyncio.gather(
            *(system.post("/sessions/s1/messages", card(content=str(n), expected_revision=revision)) for n in range(2))
        )
        assert sorted(answer.status_code for answer in answers) == [201, 409]
        assert [row["role"] for row in await system.messages("s1")] == ["user", "assistant", "host"]


@pytest.mark.parametrize(
    "body",
    [
        {"segments": []},
        {"segments": [CHART] * 17},
        {"segments": [{"kind": "text", "text": "x"}]},
        {"segments": [{"kind": "component", "data": {}}]},
        {"segments": [CHART | {"data": "x" * 65_536}]},
        {"segments": [CHART], "id": "k" * 65},
        {"segments": [CHART], "role": "user"},
        {"content": "no segments"},
        {"segments": [CHART], "profile": "nobody"},
    ],
    ids=["none", "17", "text", "untyped", "64 KiB", "long id", "role", "absent", "profile"],
)
async def test_r175_what_is_no_card_is_refused_and_makes_nothing(database_url: str, temporal_address: str, body: Answer) -> None:
    async with running_system(database_url, temporal_address) as system:
        answer = await system.post("/sessions/s1/messages", body)
        assert answer.status_code == 422, answer.text
        assert (await system.http.get("/api/sessions/s1")).status_code == 404


async def test_r175_the_largest_card_fits(database_url: str, temporal_address: str) -> None:
    segments = [CHART | {"data": "x" * 4_000} for _ in range(16)]
    async with running_system(database_url, temporal_address) as system:
        row = await post(system, "s1", {"segments": segments, "id": "k" * 64})
        assert row["segments"] == segments
        too_long = await system.post("/sessions/s1/messages", card(content="x" * (1024 * 1024 + 1)))
        assert (too_long.status_code, too_long.json()["code"]) == (413, "too_large")
