"""Takes the pictures of docs/images anew: `python -m tests.screenshots` (`make screenshots`).

Starts an `outlast dev` of its own, encrypted, puts sessions into different states, and looks at them in Temporal's Web UI with a headless
Chromium. Needs the package `chromium`.
"""

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import quote

import httpx
from playwright.async_api import Page, Route

from tests.browsers import running_browser
from tests.chaos.processes import ROOT, Dev, Programs
from tests.provider import Provider, fails

IMAGES = ROOT / "docs" / "images"
COLUMNS = ("Status", "Workflow ID", "OutlastStatus", "OutlastPendingTool", "OutlastWaitingSince", "OutlastTurn", "OutlastPrincipal")
WIDTH, HEIGHT = 1440, 620
OPERATOR = {"x-outlast-principal": "olga", "x-outlast-roles": "admin"}
MOST_BYTES = 200_000

PROFILE = '''
from profiles import HostTool, Profile

def find_order(number: int) -> dict[str, object]:
    """Looks an order up."""
    return {"number": number, "total": "49.90 EUR", "state": "delivered"}

ORDER = {"type": "object", "properties": {"order": {"type": "integer"}}, "required": ["order"]}
profile = Profile(
    "support",
    "You answer for a shop.",
    tools=[find_order],
    host_tools=[
        HostTool("approve_refund", "Asks a person to approve a refund.", ORDER),
        HostTool("open_page", "Opens a page.", {"type": "object"}),
    ],
)
'''
"""A shop's assistant. The demo model calls what a message names."""

REFUND = 'find_order {"number": 4711} and then approve_refund {"order": 4711}'
SESSIONS = (
    ("ann", "order-4711", "Hello! Where is my order?", None),
    ("ann", "order-4711", REFUND, None),
    ("ben", "order-4712", 'Please open_page {"url": "/orders/4712"}', None),
    ("carla", "order-4713", "Thank you, all is well.", None),
    ("dora", "order-4714", "Where is my parcel?", "openai-chat:unpaid"),
    ("finn", "order-4716", "Hello!", None),
)
RUNNING = (("emil", "order-4715", "Count to 5000.", None), ("finn", "order-4716", "Is it there yet?", "openai-chat:busy"))
"""Principal, session, message and model of turns that end, and of some that do not."""


async def send(url: str, turns: tuple[tuple[str, str, str, str | None], ...], *, wait: bool) -> None:
    """Sends messages, one after the other."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        for principal, session, content, model in turns:
            body = {"session_id": session, "profile": "support", "content": content, "config": {"model": model} if model else None}
            answer = await http.post(f"/api/chat?wait={str(wait).lower()}", json=body, headers={"x-outlast-principal": principal})
            assert answer.status_code in (200, 202), answer.text


@asynccontextmanager
async def shop(folder: Path) -> AsyncIterator[Dev]:
    """An `outlast dev` with sessions that wait, failed, are idle, run, and try again and again."""
    (folder / "support.py").write_text(PROFILE)
    busy = fails(429, "slow down", retry_after="30")
    programs = Programs(folder)
    async with Provider([{**fails(401, "no such key"), "when": "parcel"}, busy]) as provider:
        env = {
            "OUTLAST_PROFILES": "support.py",
            "OUTLAST_ACCESS__MODE": "header",
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": provider.url,
            "OUTLAST_MODEL": "demo",
        }
        dev = Dev(programs, folder / "data", "--encrypted", env=env)
        try:
            await dev.ready()
            await send(dev.url, SESSIONS, wait=True)
            await send(dev.url, RUNNING, wait=False)
            await asyncio.sleep(3)  # lists follow at a distance
            yield dev
        finally:
            programs.finish()


@asynccontextmanager
async def looking(ui: str) -> AsyncIterator[Page]:
    """A page of the Web UI, with our columns, whose requests for decrypted payloads are an admin's."""

    async def as_operator(route: Route) -> None:
        await route.continue_(headers={**route.request.headers, **OPERATOR})

    kept = {
        "namespace-workflow-table-columns": json.dumps({"default": [{"label": name} for name in COLUMNS]}),
        "navOpen": "false",
        "eventFilterSort": '"ascending"',
    }
    async with running_browser() as browser:
        page = await browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, timezone_id="UTC", base_url=ui)
        await page.add_init_script("".join(f"localStorage.setItem({json.dumps(key)}, {json.dumps(value)});" for key, value in kept.items()))
        await page.route("**/codec/**", as_operator)
        yield page


async def shot(page: Page, name: str, *, height: int = HEIGHT, below: str = "") -> None:
    """One picture of what the page shows once it has come to rest; of the part that begins with a text where one is named."""
    await page.set_viewport_size({"width": WIDTH, "height": height})
    await page.wait_for_timeout(1500)
    path = IMAGES / f"{name}.png"
    box = await page.get_by_text(below).first.bounding_box() if below else None
    top = box["y"] - 12 if box else 0
    await page.screenshot(path=path, clip={"x": 0, "y": top, "width": WIDTH, "height": height - top})
    assert path.stat().st_size < MOST_BYTES, f"{path} is too large"
    print(path.relative_to(ROOT), path.stat().st_size)


async def take(ui: str) -> None:
    """All pictures."""
    async with looking(ui) as page:
        workflows = "/namespaces/default/workflows"
        await page.goto(workflows)
        await page.get_by_role("link", name="order-4711").first.wait_for()
        await shot(page, "sessions")
        await page.goto(f"{workflows}/{quote('session/default/order-4711', safe='')}")
        await page.get_by_text("step 1").first.wait_for()
        await shot(page, "timeline", height=760)
        run = page.url.removesuffix("/timeline")
        await page.goto(f"{run}/user-metadata")
        await page.frame_locator("#user-metadata-current-details").get_by_text("waits for the host").first.wait_for()
        await shot(page, "details", height=680)
        await page.goto(f"{run}/history")
        await page.set_viewport_size({"width": WIDTH, "height": 1100})
        await page.get_by_text("find_order").first.click()
        await shot(page, "history", height=1100, below="Activity Task Completed")
        await page.goto(f"{workflows}/{quote('session/default/order-4716', safe='')}")
        await page.wait_for_url("**/timeline*")
        await page.goto(page.url.partition("/timeline")[0] + "/pending-activities")
        await page.get_by_text("run_step").first.wait_for()
        await shot(page, "pending", height=485)


async def main() -> None:
    """Starts, looks, ends."""
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        async with shop(Path(folder)) as dev:
            await take(dev.record["temporal_ui"])


if __name__ == "__main__":
    asyncio.run(main())
