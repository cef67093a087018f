"""Profiles that tests talk to. A path of this file is a test's OUTLAST_PROFILES."""

import asyncio

from profiles import HostTool, Profile, tool


def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def broken() -> str:
    """Always fails."""
    raise RuntimeError("out of order")


async def wait_for(seconds: float) -> str:
    """Takes its time."""
    await asyncio.sleep(seconds)
    return "waited"


@tool(timeout_seconds=30, idempotent=True)
async def repeatable(seconds: float) -> str:
    """Takes its time, and may run twice."""
    await asyncio.sleep(seconds)
    return "done"


def big(characters: int) -> str:
    """A long text."""
    return "x" * characters


OPEN_PAGE = HostTool(
    "open_page",
    "Opens a page.",
    {"type": "object", "properties": {"url": {"type": "string"}}, "required": ["url"], "additionalProperties": False},
)
ASK_USER = HostTool(
    "ask_user",
    "Asks the person.",
    {"type": "object", "properties": {"question": {"type": "string"}}, "required": ["question"], "additionalProperties": False},
)

assistant = Profile(
    "assistant", "You are an assistant under test.", tools=[add, broken, wait_for, repeatable, big], host_tools=[OPEN_PAGE, ASK_USER]
)
other = Profile("other", "You are another assistant.")
thrifty = Profile("thrifty", "You do little.", tools=[add], budget={"max_requests": 1})
patient = Profile("patient", "You ask for all at once.", host_tools=[OPEN_PAGE, ASK_USER], handover="all")
SOON = HostTool("soon", "Waits an hour.", {"type": "object"}, deadline_seconds=3600, remind_seconds=1800)
LATER = HostTool("later", "Waits ten hours.", {"type": "object"}, deadline_seconds=36000, remind_seconds=18000)
first = Profile("first", "You are watched.", tools=[add], host_tools=[OPEN_PAGE, SOON, LATER])
second = Profile("second", "You are watched too.", tools=[add], host_tools=[OPEN_PAGE, SOON, LATER])
profiles = [assistant, other, thrifty, patient, first, second]
