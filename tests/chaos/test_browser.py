"""The page of docs/browser.md in a real browser: served from another origin, it reads on while the API restarts, and other pages may not."""

import re
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.async_api import Browser, Page, Request, expect

from tests.browsers import CHROMIUM, running_browser
from tests.chaos.processes import ROOT, SIGNING, Program, Programs, ready
from tests.ports import free_port
from tests.services import as_runtime

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs a browser: install the package `chromium`")

LAST = 1000
"""It takes ten seconds to count so far: long enough for a busy machine to interrupt it."""

COUNTED = " ".join(str(number) for number in range(1, LAST + 1)) + "."
LASTING = {"OUTLAST_STREAM_TICKET_TTL_SECONDS": "600"}
BRIEF = {"OUTLAST_STREAM_TICKET_TTL_SECONDS": "1"}
NOTED = """
    window.noted = [];
    window.EventSource = class extends EventSource {
        constructor(url) {
            super(url);
            this.addEventListener("text.delta", (event) => noted.push(event.lastEventId));
        }
    };
"""
"""Run in the page before its own script: notes the ids of all text that comes."""

PATIENCE = 60_000
"""Milliseconds that the page may take to show something."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Nobody reads it."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The origin of a server of a folder's files."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            serving.join()


@pytest.fixture
def origin(folder: Path) -> Iterator[str]:
    """An origin that has the page of the documentation."""
    site = folder / "site"
    site.mkdir()
    [page] = re.findall(r"^```html\n(.*?)^```", (ROOT / "docs" / "browser.md").read_text(), re.MULTILINE | re.DOTALL)
    (site / "page.html").write_text(page)
    with served(site) as origin:
        yield origin


class Running:
    """A worker, and an API that allows one origin's pages."""

    def __init__(self, programs: Programs, env: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{env['OUTLAST_API__PORT']}"
        self._programs = programs
        self._env = env
        self.worker = programs.start("worker", env=env)

    def api(self, **more: str) -> Program:
        return self._programs.start("api", env=self._env | more)

    def page(self, origin: str, session: str) -> str:
        return f"{origin}/page.html?{httpx.QueryParams(api=self.url, session=session)}"


@pytest.fixture
async def running(programs: Programs, database_url: str, temporal_address: str, folder: Path, origin: str) -> AsyncIterator[Running]:
    yield Running(
        programs,
        {
            "OUTLAST_DATABASE__URL": as_runtime(database_url),
            "TEMPORAL_ADDRESS": temporal_address,
            "OUTLAST_TASK_QUEUE": f"browser-{folder.name}",
            "OUTLAST_API__PORT": str(free_port()),
            "OUTLAST_ACCESS__ORIGINS": origin,
            **SIGNING,
        },
    )


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with running_browser() as browser:
        yield browser


async def twice(page: Page) -> list[str]:
    """The ids of events that the page got more than once."""
    ids: list[str] = await page.evaluate("noted")
    assert len(ids) > 5
    return [one for one, times in Counter(ids).items() if times > 1]


async def send(page: Page, text: str) -> None:
    await page.fill("input[name=said]", text)
    await page.click("button")


async def test_r79_a_page_reads_on_while_the_api_restarts(running: Running, browser: Browser, origin: str) -> None:
    api, page = running.api(**LASTING), await browser.new_page()
    await page.add_init_script(script=NOTED)
    tickets: list[str] = []

    def seen(request: Request) -> None:
        if request.url.endswith("/stream-ticket") and request.method == "POST":
            tickets.append(request.url)

    page.on("request", seen)
    await ready(running.url)
    await page.goto(running.page(origin, "s1"))
    await send(page, f"Count to {LAST}")
    await expect(page.locator("#answer")).to_contain_text(" 30 ", timeout=PATIENCE)
    api.kill()
    await expect(page.locator("#state")).to_have_text("connection lost", timeout=PATIENCE)
    assert await page.text_content("#answer") != COUNTED
    second = running.api(**BRIEF)
    await expect(page.locator("#state")).to_have_text("done", timeout=PATIENCE)
    assert await page.text_content("#answer") == COUNTED
    # the browser came back by itself, with the ticket that it had and the last id that it got: nothing came twice
    assert len(tickets) == 1
    assert await twice(page) == []
    # now tickets are over before it can: the page takes a new one, and goes on where it was
    await send(page, f"Count to {LAST}")
    await expect(page.locator("#answer")).to_have_text(re.compile(rf"^1 2 .* 30 (?!.*{LAST})"), timeout=PATIENCE)
    second.kill()
    await expect(page.locator("#state")).to_have_text(re.compile("connection lost|Failed to fetch"), timeout=PATIENCE)
    third = running.api(**BRIEF)
    await expect(page.locator("#state")).to_have_text("done", timeout=PATIENCE)
    assert await page.text_content("#answer") == COUNTED
    assert len(tickets) > 2
    assert await twice(page) == []
    for program in (api, second, third):
        assert "Traceback" not in program.output and "ticket=" not in program.output


async def test_r50_a_page_of_another_origin_neither_writes_nor_reads(running: Running, browser: Browser, origin: str, folder: Path) -> None:
    running.api()
    await ready(running.url)
    async with httpx.AsyncClient(base_url=running.url, timeout=60) as http:
        ticket = (await http.post("/api/chat", json={"session_id": "mine", "content": "Hello"})).is_success and (
            await http.post("/api/sessions/mine/stream-ticket")
        ).json()["ticket"]
        with served(folder / "site") as elsewhere:
            page = await browser.new_page()
            await page.goto(running.page(elsewhere, "s1"))
            await send(page, "Hello")
            await expect(page.locator("#state")).to_have_text("Failed to fetch", timeout=PATIENCE)
            assert [line["session_id"] for line in (await http.get("/api/sessions")).json()["sessions"]] == ["mine"]
            events = f"{running.url}/api/sessions/mine/events?{httpx.QueryParams(ticket=ticket)}"
            listen = """(url) => new Promise((found) => {
                const source = new EventSource(url);
                source.addEventListener("turn.started", () => found("read"));
                source.onerror = () => found(source.readyState === EventSource.CLOSED ? "refused" : "lost");
            })"""
            assert await page.evaluate(listen, events) == "refused"
            await page.goto(f"{origin}/page.html")
            assert await page.evaluate(listen, events) == "read"
