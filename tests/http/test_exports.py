"""Exports: a session as a file, in four formats."""

import asyncio
import json
from collections import Counter
from typing import Any

import httpx
import pytest
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter
from pydantic_ai.messages import ModelMessagesTypeAdapter

from tests.models import calls, says, script, waits
from tests.system import System, running_system

COMPLETIONS: TypeAdapter[list[Any]] = TypeAdapter(list[ChatCompletionMessageParam])
FENCE = "```\n# not a heading"


async def talk(system: System) -> str:
    """Two server tools, steering, a branch, a card, and a host action that still waits. Answers the leaf of the first path."""
    go_on = asyncio.Event()
    system.script.then(
        calls(("c1", "add", {"a": 1, "b": 2}), ("c2", "broken", {}), text="Let me see. "),
        waits(go_on, "It is ", "three."),
        says("Drei.", thinking="In German."),
        says("Vier."),
        calls(("h1", "open_page", {"url": FENCE}), ("h2", "ask_user", {"question": "?"}), text="Look:"),
        calls(("h3", "ask_user", {"question": "!"})),
    )
    await system.submit("s1", "How many? Ünï", id="m1", attachments=[{"name": "n.txt", "media_type": "text/plain", "data": "aGk="}])
    await system.until(lambda: len(system.script.requests) == 2)
    await system.post("/chat", {"session_id": "s1", "content": "In German.", "message_type": "steering", "id": "g1"})
    go_on.set()
    first = await system.until(lambda: _leaf(system))
    await system.chat("s1", "And then?", id="m2")
    await system.post(
        "/sessions/s1/messages", {"id": "k1", "content": "A card", "segments": [{"kind": "component", "type": "x", "data": 1}]}
    )
    await system.chat("s1", "Open it.", id="m3", parent_id=first)
    await system.resume("s1", "h1", {"shown": FENCE})
    await system.resume("s1", "h2", "no", tool_outcome="denied")
    return str(first)


async def _leaf(system: System) -> Any:
    session = await system.get("/sessions/s1")
    return session["active_leaf_id"] if session["status"] == "idle" else None


async def export(system: System, query: str) -> httpx.Response:
    answer = await system.http.get(f"/api/sessions/s1/export?{query}")
    assert answer.status_code == 200, answer.text
    return answer


async def test_s78_what_was_said_is_in_every_format(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("unused"))) as system:
        system.script.behaviours.clear()
        first = await talk(system)
        await _json_lines(system, first)
        await _markdown(system)
        await _openai(system, first)
        await _pydantic_ai(system)
        acts = await system.conn.fetch("select * from audit where action = 'export' order by at")
        assert len(acts) == 7 and {act["principal"] for act in acts} == {"local"}
        assert json.loads(acts[1]["facts"]) == {"format": "jsonl", "leaf_id": first, "revision": json.loads(acts[0]["facts"])["revision"]}
        assert "How many?" not in str([dict(act) for act in acts])


async def _json_lines(system: System, first: str) -> None:
    answer = await export(system, "")
    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.headers["content-disposition"] == 'attachment; filename="s1.jsonl"'
    rows = [json.loads(line) for line in answer.text.splitlines()]
    seen: set[str | None] = {None}
    for row in rows:
        assert row["parent_id"] in seen
        seen.add(row["id"])
    tree = (await system.get("/sessions/s1/tree"))["messages"]
    assert Counter(row["id"] for row in rows) == Counter([*(row["id"] for row in tree), "g1"])
    active = await system.messages("s1")
    assert {row["id"] for row in rows if row["active"]} == {row["id"] for row in active}
    by_id = {row["id"]: row for row in rows}
    assert all(by_id[row["id"]] == row | {"active": True} for row in active)
    path = [json.loads(line)["id"] for line in (await export(system, f"leaf_id={first}")).text.splitlines()]
    assert path == ["m1", first, "g1"]


async def _markdown(system: System) -> None:
    text = (await export(system, "format=markdown")).text
    for words in (
        "# s1\n",
        "How many? Ünï",
        "Let me see. ",
        "In German.",
        "Drei.",
        "*attachment: n.txt, text/plain*",
        "### tool add, completed",
    ):
        assert words in text, words
    assert "### tool open_page, completed" in text and "### tool ask_user, denied" in text and "### tool ask_user, open" in text
    assert f"````json\n{json.dumps({'url': FENCE})}\n````" in text
    assert "Vier." not in text and "A card" not in text
    other = (await export(system, "format=markdown&leaf_id=k1")).text
    assert "Vier." in other and other.count("## host, ") == 1


async def _openai(system: System, first: str) -> None:
    messages = (await export(system, "format=openai")).json()
    COMPLETIONS.validate_python(messages)
    open_ids: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == open_ids.pop(0)
        else:
            assert open_ids == [], "calls without results"
        open_ids += [call["id"] for call in message.get("tool_calls", [])]
    assert open_ids == []
    said = [(message["role"], message.get("content")) for message in messages]
    assert said[0] == ("user", "How many? Ünï\n\n[attachment: n.txt, text/plain]")
    assert said[1] == ("assistant", "Let me see. ")
    assert said[4:7] == [("assistant", "It is three."), ("user", "In German."), ("assistant", "Drei.")]
    assert "'h3'" not in str(messages) and said[-1] == ("tool", "no")
    assert (await export(system, f"format=openai&leaf_id={first}")).json() == messages[:7]


async def _pydantic_ai(system: System) -> None:
    answer = await export(system, "format=pydantic-ai")
    messages = ModelMessagesTypeAdapter.validate_json(answer.content)
    assert answer.headers["content-disposition"] == 'attachment; filename="s1.pydantic-ai.json"'
    seen = system.script.requests[-1]
    assert [message.parts for message in messages[: len(seen)]] == [message.parts for message in seen]
    assert len(messages) == len(seen) + 1


async def test_s19_s78_an_export_is_its_owners(database_url: str, temporal_address: str) -> None:
    async with running_system(database_url, temporal_address, script(says("hello"))) as system:
        alice, bob = {"x-test-principal": "alice"}, {"x-test-principal": "bob"}
        assert (await system.post("/chat", {"session_id": "s1", "content": "mine"}, headers=alice)).status_code == 200
        foreign, absent = [await system.http.get(f"/api/sessions/{id}/export", headers=bob) for id in ("s1", "none")]
        assert foreign.status_code == absent.status_code == 404 and foreign.content == absent.content
        for query, status in (("format=pdf", 422), ("leaf_id=a%20b", 422), ("leaf_id=none", 404), ("format=", 422)):
            assert (await system.http.get(f"/api/sessions/s1/export?{query}", headers=alice)).status_code == status
        assert await system.conn.fetchval("select count(*) from audit where action = 'export'") == 0
        assert "mine" in (await system.http.get("/api/sessions/s1/export", headers=alice)).text
        assert await system.conn.fetchval("select principal from audit where action = 'export'") == "alice"


@pytest.mark.parametrize("format", ["jsonl", "markdown", "openai", "pydantic-ai"])
async def test_s78_a_session_without_messages_is_an_empty_file(offline: httpx.AsyncClient, seed: Any, format: str) -> None:
    await seed("a:b").session()
    answer = await offline.get(f"/api/sessions/a:b/export?format={format}", headers={"x-test-roles": "admin"})
    assert (answer.status_code, answer.text) == (200, {"jsonl": "", "markdown": "# a:b\n"}.get(format, "[]\n"))
    assert 'filename="a_b.' in answer.headers["content-disposition"]
