"""Everything that a profile can have, to be tried offline with the `demo` model."""

import hashlib
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from profiles import HostTool, Profile, ToolContext, tool

MOST_DICE = 100
MOST_SIDES = 1000


@tool(idempotent=True)
def current_time() -> str:
    """The current date and time, UTC, in ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@tool(idempotent=True)
def roll_dice(
    ctx: ToolContext,
    sides: Annotated[int, Field(description="How many sides each of them has, 2 to 1000.")] = 6,
    count: Annotated[int, Field(description="How many dice, 1 to 100.")] = 1,
) -> dict[str, object]:
    """Rolls dice and answers each roll and their total."""
    if not (2 <= sides <= MOST_SIDES and 1 <= count <= MOST_DICE):
        raise ValueError(f"I have dice with 2 to {MOST_SIDES} sides, and up to {MOST_DICE} of them")
    # The call id is the source of chance, so that a call that has to be run again rolls the same.
    rolls = [_chance(f"{ctx.session_id}/{ctx.call_id}/{number}") % sides + 1 for number in range(count)]
    return {"rolls": rolls, "total": sum(rolls)}


def _chance(seed: str) -> int:
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big")


profile = Profile(
    name="demo",
    instructions="You show what Outlast can do. Use the tools that fit; say what came of them.",
    tools=[current_time, roll_dice],
    host_tools=[
        HostTool(
            name="open_page",
            description="Opens a page in the host application and answers what it shows.",
            parameters={
                "type": "object",
                "properties": {"url": {"type": "string", "minLength": 1, "description": "Address or path of the page."}},
                "required": ["url"],
                "additionalProperties": False,
            },
        ),
        HostTool(
            name="ask_user",
            description="Asks the person a question and answers what they said.",
            parameters={
                "type": "object",
                "properties": {"question": {"type": "string", "minLength": 1, "description": "The question, in full."}},
                "required": ["question"],
                "additionalProperties": False,
            },
        ),
    ],
)
