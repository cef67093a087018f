"""What a request must be. None of these reaches a workflow: neither Temporal nor Postgres is there, and a refusal comes before they are missed."""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.types import Message

from api.errors import install
from api.intake import MAX_DEPTH, StrictRoute
from api.schemas import MAX_CONTENT, MAX_CONTEXT, MAX_VIEW, ChatBody
from settings import ApiSettings, Settings

MAX_BODY: int = ApiSettings.model_fields["max_body_bytes"].default
JSON = {"content-type": "application/json"}
CALL = {"session_id": "s1", "tool_call_id": "c1", "tool_result": 1}
DEEP = "[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1)
SCHEMA = {"type": "object", "properties": {}}


def action(**changes: Any) -> dict[str, Any]:
    return {"name": "show", "description": "Shows it", "parameters": SCHEMA, **changes}


SHAPES: list[tuple[dict[str, Any], str]] = [
    ({}, "needs `content`"),
    ({"content": ""}, "needs `content`"),
    ({"content": None}, "needs `content`"),
    ({"content": 5}, "content"),
    ({"content": "x", "colour": "red"}, "colour: there is no such field"),
    ({"content": "x", "id": "x" * 65}, "id"),
    ({"content": "x", "id": "a b"}, "id"),
    ({"content": "x", "id": "a\n"}, "id"),
    ({"content": "x", "id": ".."}, "id"),
    ({"content": "x", "id": ""}, "id"),
    ({"content": "x", "session_id": "."}, "session_id"),
    ({"content": "x", "session_id": "a/b"}, "session_id"),
    ({"content": "x", "parent_id": "ä"}, "parent_id"),
    ({"content": "x", "turn_id": "x" * 65}, "turn_id"),
    ({"content": "x", "when_busy": "later"}, "when_busy"),
    ({"content": "x", "message_type": "system"}, "message_type"),
    ({"content": "x", "expected_revision": -1}, "expected_revision"),
    ({"content": "x", "profile": ""}, "profile"),
    ({"content": "x", "subject": "x" * 201}, "subject"),
    ({"content": "x", "config": {"max_steps": 0}}, "config.max_steps"),
    ({"content": "x", "config": {"max_steps": "3"}}, "config.max_steps"),
    ({"content": "x", "config": {"max_steps": True}}, "config.max_steps"),
    ({"content": "x", "expected_revision": "1"}, "expected_revision"),
    ({"content": "x", "config": {"top_p": 1}}, "config.top_p: there is no such field"),
    ({"content": "x", "config": {"budget": {"max_euros": 1}}}, "config.budget.max_euros: there is no such field"),
    ({"content": "x", "host_context": {"version": 2}}, "host_context.version"),
    ({"content": "x", "host_context": {"screen": 1}}, "host_context.screen: there is no such field"),
    ({"content": "x", "host_context": {"view": {"title": "x"}}}, "host_context.view.title: there is no such field"),
    ({"content": "x", "host_context": {"actions": [action(name=f"a{n}") for n in range(33)]}}, "host_context.actions"),
    ({"content": "x", "host_context": {"actions": [action(), action()]}}, "same name"),
    ({"content": "x", "host_context": {"actions": [action(name="a b")]}}, "host_context.actions.0.name"),
    ({"content": "x", "host_context": {"actions": [action(parameters={"type": "array"})]}}, "JSON schema"),
    ({"content": "x", "host_context": {"actions": [action(parameters={"type": "object", "required": 5})]}}, "JSON schema"),
    ({"content": "x", "host_context": {"actions": [action(deadline_seconds=0)]}}, "deadline_seconds"),
    ({"content": "x", "host_context": {"attachments": [1] * 17}}, "host_context.attachments"),
    ({"content": "x", "host_context": {"view": {"data": "x" * MAX_VIEW}}}, "characters of JSON"),
    ({"content": "x", "host_context": {"background": {"x": "x" * MAX_CONTEXT}}}, f"at most {MAX_CONTEXT} are allowed"),
    ({"content": "x", "attachments": [{"url": "data:,x"}] * 17}, "attachments"),
    ({"content": "x", "host_context": {"captured_at": "2026-01-01T00:00:00"}}, "captured_at"),
    ({"content": "x", "tool_result": 1}, "needs `tool_call_id`"),
    ({"content": "x", "tool_outcome": "denied"}, "needs `tool_call_id`"),
    (CALL | {"content": "x"}, "not both"),
    (CALL | {"content": ""}, "not both"),
    (CALL | {"id": "m1"}, "`id` belongs to a message"),
    (CALL | {"parent_id": "m1"}, "`parent_id` belongs to a message"),
    (CALL | {"when_busy": "reject"}, "`when_busy` belongs to a message"),
    (CALL | {"session_id": None}, "needs `session_id`"),
    ({"session_id": "s1", "tool_call_id": "c1"}, "needs `tool_result`"),
    (CALL | {"tool_outcome": "maybe"}, "tool_outcome"),
    (CALL | {"tool_call_id": ""}, "tool_call_id"),
]


@pytest.mark.parametrize(("body", "says"), SHAPES, ids=lambda value: value if isinstance(value, str) else None)
async def test_r66_a_body_that_is_not_well_formed_is_422(alone: httpx.AsyncClient, body: dict[str, Any], says: str) -> None:
    for path in ("/api/chat", "/api/chat/stream"):
        answer = await alone.post(path, content=json.dumps(body), headers=JSON)
        assert answer.status_code == 422, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert set(problem) >= {"type", "title", "status", "detail", "code"}
        assert (problem["code"], problem["status"]) == ("bad_request", 422)
        assert says in problem["detail"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"{",
        b"[1]",
        b'"x"',
        b'{"content": "x"} x',
        b'{"content": "\\u0000"}',
        b'{"content": "a\\ud800b"}',
        b'{"content": "x", "host_context": {"background": {"\\u0000": 1}}}',
        b'{"content": "x", "host_context": {"background": {"a": ["\\udfff"]}}}',
        b'{"content": "\x00"}',
        b'{"content": "\xff"}',
        b'{"content": "x", "config": {"temperature": NaN}}',
        b'{"session_id": "s", "tool_call_id": "c", "tool_result": Infinity}',
        b'{"session_id": "s", "tool_call_id": "c", "tool_result": 1e999}',
        f'{{"session_id": "s", "tool_call_id": "c", "tool_result": {DEEP}}}'.encode(),
        b'{"session_id": "s", "tool_call_id": "c", "tool_result": ' + b"[" * 200_000,
    ],
    ids=range(17),
)
async def test_bad_bytes_are_422(alone: httpx.AsyncClient, body: bytes) -> None:
    answer = await alone.post("/api/chat", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad_request"), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", ""])
async def test_another_content_type_is_415(alone: httpx.AsyncClient, kind: str) -> None:
    for path in ("/api/chat", "/api/chat/stream", "/api/sessions/s1/cancel"):
        answer = await alone.post(path, content=b'{"content": "x"}', headers={"content-type": kind})
        assert (answer.status_code, answer.json()["code"]) == (415, "unsupported_media_type")


async def test_a_body_that_is_too_large_is_413_whether_it_says_so_or_not(alone: httpx.AsyncClient) -> None:
    async def drip() -> AsyncIterator[bytes]:
        yield b'{"content": "'
        for _ in range(MAX_BODY // 65536):
            yield b"x" * 65536
        yield b'"}'

    for content in (b"x" * (MAX_BODY + 1), drip()):
        answer = await alone.post("/api/chat", content=content, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
        assert answer.headers["content-type"] == "application/problem+json"
        assert f"{MAX_BODY} bytes (OUTLAST_API__MAX_BODY_BYTES)" in answer.json()["detail"]


async def test_content_over_one_mebibyte_is_413(alone: httpx.AsyncClient) -> None:
    answer = await alone.post("/api/chat", json={"content": "ä" * (MAX_CONTENT // 2 + 1)})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        ({"content": "x", "profile": "nobody"}, "unknown_profile", "nobody"),
        (CALL | {"profile": "nobody"}, "unknown_profile", "nobody"),
    ],
)
async def test_what_cannot_be_had_is_422_and_named(alone: httpx.AsyncClient, body: dict[str, Any], code: str, says: str) -> None:
    answer = await alone.post("/api/chat", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, code)
    assert says in answer.json()["detail"]


async def test_unknown_paths_and_methods_are_problems(alone: httpx.AsyncClient) -> None:
    for method, path, status, code in (
        ("GET", "/api/nothing", 404, "not_found"),
        ("POST", "/", 404, "not_found"),
        ("GET", "/api/chat", 405, "method_not_allowed"),
        ("DELETE", "/api/sessions", 405, "method_not_allowed"),
        ("PUT", "/api/sessions/s1", 405, "method_not_allowed"),
    ):
        answer = await alone.request(method, path)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.headers["content-type"] == "application/problem+json"


def test_r63_the_digest_is_of_what_a_message_means() -> None:
    plain = ChatBody(content="x")
    assert ChatBody(content="x", id="m1", session_id="s1", turn_id="t1", expected_revision=3).digest == plain.digest
    assert ChatBody(content="x", when_busy="interrupt", message_type="standard").digest == plain.digest
    for other in (
        {"content": "y"},
        {"content": "x", "parent_id": "p"},
        {"content": "x", "profile": "demo"},
        {"content": "x", "subject": "s"},
        {"content": "x", "when_busy": "enqueue"},
        {"content": "x", "config": {"max_steps": 3}},
        {"content": "x", "host_context": {"background": {"a": 1}}},
    ):
        assert ChatBody.model_validate(other).digest != plain.digest
    first, second = ({"b": 1, "a": {"d": 2, "c": 3}}, {"a": {"c": 3, "d": 2}, "b": 1})
    same = [ChatBody.model_validate({"content": "x", "host_context": {"background": order}}).digest for order in (first, second)]
    assert same[0] == same[1]


async def test_who_leaves_within_the_body_is_no_fault_of_the_api() -> None:
    sent: Iterator[Message] = iter(({"type": "http.request", "body": b'{"content"', "more_body": True}, {"type": "http.disconnect"}))
    answered: list[Message] = []

    async def receive() -> Message:
        return next(sent)

    async def send(message: Message) -> None:
        answered.append(message)

    app = FastAPI()
    app.state.settings = Settings()
    install(app)
    app.router.route_class = StrictRoute

    @app.post("/")
    async def take(body: ChatBody) -> None:
        """Never reached."""

    scope = {"type": "http", "method": "POST", "path": "/", "query_string": b"", "headers": [(b"content-type", b"application/json")]}
    await app(scope, receive, send)
    assert answered[0]["status"] == 400
