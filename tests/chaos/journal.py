"""A profile whose tools leave a line in a file for each effect that they had, whichever process they ran in."""

import asyncio
import os
from pathlib import Path

from profiles import HostTool, Profile, ToolContext, tool

LET_GO = ".go"
"""Behind the journal's name: a file that lets what waits go on."""


def _note(call_id: str) -> None:
    with Path(os.environ["JOURNAL"]).open("a") as journal:
        journal.write(f"{call_id}\n")


@tool(timeout_seconds=60)
async def note(seconds: float, ctx: ToolContext) -> str:
    """Has its effect, and then takes its time."""
    _note(ctx.call_id)
    await asyncio.sleep(seconds)
    return "noted"


@tool(timeout_seconds=60)
async def note_and_wait(ctx: ToolContext) -> str:
    """Has its effect, and then waits until the journal's test says that it may end."""
    _note(ctx.call_id)
    while not Path(os.environ["JOURNAL"] + LET_GO).exists():
        await asyncio.sleep(0.02)
    return "noted"


@tool(timeout_seconds=60, idempotent=True)
async def note_again(seconds: float, ctx: ToolContext) -> str:
    """The same, and may run twice; the second time it is quick."""
    first = ctx.call_id not in Path(os.environ["JOURNAL"]).read_text() if Path(os.environ["JOURNAL"]).exists() else True
    _note(ctx.call_id)
    await asyncio.sleep(seconds if first else 0)
    return "noted"


OPEN_PAGE = HostTool("open_page", "Opens a page.", {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"]})

profile = Profile("journal", "You keep a journal.", tools=[note, note_and_wait, note_again], host_tools=[OPEN_PAGE])
