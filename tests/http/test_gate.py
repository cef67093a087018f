"""Origins, durability, health, documents."""

import asyncio
import re
from typing import Literal

import httpx
import pytest

from api.app import create_app
from api.server import ApiServer
from settings import AccessSettings, Settings
from tests.http.access_table import TABLE
from tests.http.conftest import NOWHERE, running

WRITES = ("/api/chat", "/api/chat/stream", "/api/sessions/s1/cancel", "/api/sessions/s1/repair", "/api/nothing")


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://127.0.0.1.evil.example", "file://"])
@pytest.mark.parametrize("path", WRITES)
async def test_r50_a_foreign_page_changes_nothing(alone: httpx.AsyncClient, path: str, origin: str) -> None:
    answer = await alone.post(path, content=b"not even JSON", headers={"origin": origin})
    assert (answer.status_code, answer.json()["code"]) == (403, "forbidden_origin")
    assert answer.headers["content-type"] == "application/problem+json"


async def test_r50_a_name_that_a_foreign_page_points_here_is_foreign(alone: httpx.AsyncClient) -> None:
    headers = {"origin": "http://evil.example:8080", "host": "evil.example:8080"}
    assert (await alone.post("/api/chat", json={}, headers=headers)).status_code == 403


@pytest.mark.parametrize("origin", [None, "http://127.0.0.1", "https://app.example"])
async def test_r50_own_and_named_origins_pass(settings: Settings, origin: str | None) -> None:
    named = settings.model_copy(update={"access": AccessSettings(origins=["https://app.example"])})
    async with running(create_app(named, temporal_address=NOWHERE)) as client:
        answer = await client.post("/api/chat", json={}, headers={"origin": origin} if origin else {})
        assert answer.status_code == 422
        if origin == "https://app.example":
            assert answer.headers["access-control-allow-origin"] == origin
            asked = {"origin": origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type"}
            assert (await client.options("/api/chat", headers=asked)).status_code == 200


async def test_r50_foreign_pages_may_not_even_ask(offline: httpx.AsyncClient) -> None:
    assert (await offline.get("/api/sessions", headers={"origin": "https://evil.example"})).headers.get(
        "access-control-allow-origin"
    ) is None


@pytest.mark.parametrize("mode", ["local", "header", "key"])
async def test_r50_a_preflight_names_nobody_and_pages_may_send_what_the_api_takes(
    settings: Settings, mode: Literal["local", "header", "key"]
) -> None:
    named = settings.model_copy(update={"access": AccessSettings(mode=mode, origins=["https://app.example"])})
    sent = ["authorization", "content-type", "idempotency-key", "last-event-id", "prefer", "x-outlast-principal", "x-outlast-tenant"]
    async with running(create_app(named, temporal_address=NOWHERE)) as client:
        for method in ("GET", "POST", "PATCH", "DELETE"):
            asked = {"access-control-request-method": method, "access-control-request-headers": ", ".join(sent)}
            answer = await client.options("/api/sessions/s1", headers={"origin": "https://app.example", **asked})
            assert answer.status_code == 200, answer.text
            assert answer.headers["access-control-allow-origin"] == "https://app.example"
            foreign = await client.options("/api/sessions/s1", headers={"origin": "https://evil.example", **asked})
            assert foreign.status_code == 400 and "access-control-allow-origin" not in foreign.headers
        read = await client.get("/api/sessions/s1", headers={"origin": "https://app.example"})
        assert read.status_code == (404 if mode == "local" else 401)
        assert read.headers["access-control-allow-origin"] == "https://app.example"
        assert {"Retry-After", "X-Session-ID", "WWW-Authenticate"} <= set(read.headers["access-control-expose-headers"].split(", "))
        assert read.headers.get("access-control-allow-credentials") == ("true" if mode == "header" else None)
        evil = await client.post("/api/chat", json={}, headers={"origin": "https://evil.example", "x-outlast-principal": "alice"})
        assert (evil.status_code, evil.json()["code"]) == (403, "forbidden_origin")


async def test_answers_may_be_neither_kept_nor_framed_nor_guessed_at(alone: httpx.AsyncClient) -> None:
    asked = [
        await alone.get(path) for path in ("/api/sessions", "/health", "/openapi.json", "/nothing", "/docs", "/docs/assets/swagger-ui.css")
    ]
    asked.append(await alone.post("/api/chat", content=b"{"))
    asked.append(await alone.post("/api/chat", json={}, headers={"origin": "https://evil.example"}))
    for answer in asked:
        page = answer.url.path.startswith("/docs")
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["referrer-policy"] == "no-referrer"
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert ("default-src 'none'" in answer.headers["content-security-policy"]) != page
        assert (answer.headers.get("cache-control") == "no-store") != page


@pytest.mark.parametrize("durable", [True, False])
async def test_s02_every_answer_says_when_nothing_is_durable(settings: Settings, durable: bool) -> None:
    async with running(create_app(settings, durable=durable, temporal_address=NOWHERE)) as client:
        assert (await client.get("/health")).json()["durable"] is durable
        answers = [
            await client.get("/api/sessions"),
            await client.get("/api/sessions/absent"),
            await client.post("/api/chat", json={}),
            await client.post("/api/chat", json={}, headers={"origin": "https://evil.example"}),
            await client.get("/health/ready"),
        ]
        assert {answer.headers.get("x-outlast-durable") for answer in answers} == {None if durable else "false"}


async def test_the_documents_need_nothing_beyond_this_process(alone: httpx.AsyncClient) -> None:
    page = (await alone.get("/docs")).text
    assets = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert assets and all(asset.startswith("/docs/assets/") for asset in assets)
    for asset in assets:
        assert (await alone.get(asset)).status_code == 200


@pytest.mark.parametrize(("mode", "kind"), [("local", None), ("header", "apiKey"), ("key", "http")])
async def test_the_openapi_document_says_how_to_name_oneself(
    settings: Settings, mode: Literal["local", "header", "key"], kind: str | None
) -> None:
    document = create_app(settings.model_copy(update={"access": AccessSettings(mode=mode)}), temporal_address=NOWHERE).openapi()
    scheme = document["components"].get("securitySchemes", {}).get("caller")
    assert (scheme and scheme["type"]) == kind
    for path, item in document["paths"].items():
        for operation in item.values():
            anybody = path.startswith(("/health", "/metrics"))
            assert ("security" in operation) == (kind is not None and not anybody), path
            assert anybody or {"401", "429", "503"} <= set(operation["responses"]), path


async def test_the_openapi_document_describes_each_answer(alone: httpx.AsyncClient) -> None:
    document = (await alone.get("/openapi.json")).json()
    operations = {(method, path): operation for path, item in document["paths"].items() for method, operation in item.items()}
    told = {f"{method.upper()} {path}" for method, path in operations}
    assert told == {row.route for row in TABLE} - {"GET /docs", "GET /openapi.json"}
    for (_, path), operation in operations.items():
        responses = operation["responses"]
        assert operation["summary"] and any(status.startswith("2") for status in responses)
        for status, response in responses.items():
            kinds = set(response["content"])
            if path == "/health":
                assert kinds == {"application/json"}
            elif status >= "400":
                assert kinds == {"application/problem+json"}, (path, status)
    chat = operations["post", "/api/chat"]["responses"]
    assert set(chat) == {"200", "202", "401", "403", "404", "409", "413", "415", "422", "429", "503"}
    assert "HTTPValidationError" not in document["components"]["schemas"]


def test_an_idle_connection_outlives_the_pools_of_clients_and_load_balancers(settings: Settings) -> None:
    assert ApiServer(create_app(settings)).config.timeout_keep_alive > 60


async def test_a_request_that_outlasts_the_stop_of_its_server_is_told_so(settings: Settings, caplog: pytest.LogCaptureFixture) -> None:
    server = ApiServer(create_app(settings, temporal_address=NOWHERE))
    server.config.timeout_graceful_shutdown = 0
    task = asyncio.create_task(server.run())
    while not server.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname())
    head = b"POST /api/chat HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    writer.write(head)
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    server.stop()
    await task
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 503 ") and b'"code":"stopping"' in answer and b"retry-after: 2" in answer
    assert not [record for record in caplog.records if record.exc_info]
