"""The message tree through the api, with everything real but the model."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.models import says, script
from tests.system import System, running_system


@pytest.fixture
async def system(database_url: str, temporal_address: str) -> AsyncIterator[System]:
    """Two api processes' worth of apps and a model that says `hello`."""
    async with running_system(database_url, temporal_address, script(says("hello")), apis=2) as system:
        yield system


async def path(system: System, session: str, leaf: str | None = None) -> list[str]:
    query = f"?leaf_id={leaf}" if leaf else ""
    return [row["id"] for row in (await system.get(f"/sessions/{session}/messages{query}"))["messages"]]


async def test_r58_r36_the_first_message_is_the_root_and_readable_at_once_everywhere(system: System, session: str) -> None:
    first = await system.chat(session, "hi", id="u1")
    assert (first["turn_number"], first["user_message_id"], first["error"], first["attempt"]) == (1, "u1", None, 1)
    for api in range(2):
        rows = (await system.get(f"/sessions/{session}/messages", api=api))["messages"]
        assert [(row["id"], row["parent_id"], row["role"]) for row in rows] == [
            ("u1", None, "user"),
            (first["message_id"], "u1", "assistant"),
        ]
        assert (rows[0]["content"], rows[1]["content"]) == ("hi", first["content"]) == ("hi", "hello")
        view = await system.get(f"/sessions/{session}", api=api)
        assert (view["active_leaf_id"], view["revision"], view["turn_number"]) == (first["message_id"], first["revision"], 1)
        assert (view["status"], view["owner_id"], view["profile"]) == ("idle", "local", "assistant")


async def test_r60_r61_r67_branches(system: System, session: str) -> None:
    first = await system.chat(session, id="u1")
    second = await system.chat(session, id="u2")
    assert second["turn_number"] == 2
    branched = await system.chat(session, id="u2b", parent_id=first["message_id"])
    assert await path(system, session) == ["u1", first["message_id"], "u2b", branched["message_id"]]
    onward = await system.chat(session, id="u3")
    assert (await path(system, session))[2:] == ["u2b", branched["message_id"], "u3", onward["message_id"]]
    assert await path(system, session, second["message_id"]) == ["u1", first["message_id"], "u2", second["message_id"]]
    tree = {row["id"]: row["parent_id"] for row in (await system.get(f"/sessions/{session}/tree"))["messages"]}
    assert tree["u2"] == tree["u2b"] == first["message_id"] and len(tree) == 8
    assert [message.parts[-1].content for message in system.script.requests[-1]] == ["hello", "hello"] * 2 + ["hello"]  # type: ignore[union-attr]


async def test_r62_an_unknown_parent_changes_nothing(system: System, session: str) -> None:
    before = (await system.chat(session, id="u1"))["revision"]
    answer = await system.post("/chat", {"session_id": session, "content": "x", "parent_id": "nope"})
    assert (answer.status_code, answer.json()["code"]) == (409, "unknown_parent")
    newborn = await system.post("/chat", {"session_id": f"{session}-2", "content": "x", "parent_id": "nope"})
    assert (newborn.status_code, newborn.json()["code"]) == (409, "unknown_parent")
    assert (await system.get(f"/sessions/{session}"))["revision"] == before
    assert (await system.http.get(f"/api/sessions/{session}-2")).status_code == 404
    assert [line["session_id"] for line in (await system.get("/sessions"))["sessions"]] == [session]


async def test_r63_l23_the_same_message_again_is_the_first_one(system: System, session: str) -> None:
    body = {"id": "u1", "profile": "assistant"}
    first, *others = await asyncio.gather(*(system.chat(session, **body) for _ in range(3)))
    assert others == [first, first]
    assert await system.chat(session, **body) == first
    again = await system.post("/chat?wait=false", {"session_id": session, "content": "hello", **body}, api=1)
    assert (again.status_code, again.json()["turn_id"], again.json()["message_id"]) == (202, first["turn_id"], first["message_id"])
    streamed = await system.post("/chat/stream", {"session_id": session, "content": "hello", **body})
    assert f'"turn_id": "{first["turn_id"]}"' in streamed.text and "event: turn.completed" in streamed.text
    other = await system.post("/chat", {"session_id": session, "content": "something else", **body})
    assert (other.status_code, other.json()["code"]) == (409, "duplicate_id")
    taken = await system.post("/chat", {"session_id": session, "content": "x", "id": first["message_id"]})
    assert (taken.status_code, taken.json()["code"]) == (409, "duplicate_id")
    assert len(system.script.requests) == 1
    assert len(await system.messages(session)) == 2


async def test_r64_message_ids_are_the_sessions_own(system: System, session: str) -> None:
    first, second = await system.chat(session, id="u1"), await system.chat(f"{session}-2", id="u1")
    assert first["turn_id"] != second["turn_id"]
    assert await path(system, session) != await path(system, f"{session}-2")


async def test_s26_a_refused_first_message_issues_no_id_and_creates_nothing(system: System, session: str) -> None:
    for body in ({"content": ""}, {"content": "x", "profile": "nobody"}, {"content": "x", "expected_revision": 9}):
        answer = await system.post("/chat", body)
        assert answer.status_code in (409, 422) and "x-session-id" not in answer.headers
    assert (await system.get("/sessions"))["sessions"] == []
    answer = await system.post("/chat", {"content": "x"})
    assert answer.headers["x-session-id"] == answer.json()["session_id"]


async def test_r37_r38_s17_owners_and_tenants(system: System, session: str) -> None:
    alice, bob = {"x-test-principal": "alice"}, {"x-test-principal": "bob"}
    elsewhere = alice | {"x-test-tenant": "other/tenant"}
    mine = await system.post("/chat", {"session_id": session, "content": "x", "id": "u1"}, headers=alice)
    assert (await system.get(f"/sessions/{session}", headers=alice))["owner_id"] == "alice"
    absent = (await system.http.get("/api/sessions/absent", headers=bob)).content
    for body in ({"content": "y"}, {"content": "x", "id": "u1"}):
        answer = await system.post("/chat", {"session_id": session, **body}, headers=bob)
        assert (answer.status_code, answer.content) == (404, absent)
    theirs = await system.post("/chat", {"session_id": session, "content": "x", "id": "u1"}, headers=elsewhere)
    assert theirs.status_code == 200 and theirs.json()["turn_id"] != mine.json()["turn_id"]
    assert len((await system.get(f"/sessions/{session}/messages", headers=elsewhere))["messages"]) == 2


async def test_r38_a_foreign_message_does_not_attach_to_one_in_flight(system: System, session: str) -> None:
    """Before the session has rows, only its workflow knows whose it is."""
    body = {"session_id": session, "content": "x", "id": "u1"}
    alice, bob = await asyncio.gather(
        system.post("/chat?wait=false", body, headers={"x-test-principal": "alice"}),
        system.post("/chat?wait=false", body, headers={"x-test-principal": "bob"}),
    )
    assert sorted((alice.status_code, bob.status_code)) == [202, 404]


async def test_r52_r53_the_binding_holds(system: System, session: str) -> None:
    await system.chat(session, subject="invoice-7")
    for body in ({"profile": "other"}, {"subject": "invoice-8"}):
        answer = await system.post("/chat", {"session_id": session, "content": "x", **body})
        assert (answer.status_code, answer.json()["code"]) == (409, "binding_conflict")
    assert (await system.chat(session, profile="assistant", subject="invoice-7"))["error"] is None
    assert (await system.get(f"/sessions/{session}"))["subject"] == "invoice-7"


async def test_s39_of_two_writers_with_one_expectation_one_gets_through(system: System, session: str) -> None:
    revision = (await system.chat(session))["revision"]
    body = {"session_id": session, "content": "x", "expected_revision": revision}
    answers = await asyncio.gather(system.post("/chat", body), system.post("/chat", body, api=1))
    assert sorted(answer.status_code for answer in answers) == [200, 409]
    refused = next(answer.json() for answer in answers if answer.status_code == 409)
    assert refused["code"] == "conversation_conflict" and refused["revision"] > revision
    assert len(await system.messages(session)) == 4
