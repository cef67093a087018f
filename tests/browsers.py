"""A real browser. Needs the package `chromium`."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, async_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
"""The program, where there is one."""


@asynccontextmanager
async def running_browser() -> AsyncIterator[Browser]:
    """No window, and no sandbox, which root can't have."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()
