"""Sessions that went through everything, and how they are looked at."""

import asyncio
import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai.exceptions import ModelHTTPError

from activities.db.shadow import Shadow
from activities.deriving.histories import Histories
from activities.deriving.verifying import Verdict, Verifier
from tests.models import calls, hangs, raises, says, waits
from tests.replay.telling import asked
from tests.system import System
from workflows.contracts.inputs import AmendInput, CardInput, SteerInput
from workflows.model.session import SessionRef

FILE = {"name": "a.txt", "media_type": "text/plain", "data": base64.b64encode(b"words").decode()}
COMPONENT = {"kind": "component", "type": "note", "data": {"a": 1}}


def context(page: str) -> dict[str, Any]:
    return {"version": 1, "view": {"name": page, "data": {"page": page}}}


async def session_of(system: System, name: str) -> SessionRef:
    uid = await system.conn.fetchval("select session_uid from sessions where tenant = $1 and session_id = $2", system.tenant, name)
    assert uid, f"there is no session {name}"
    return SessionRef(tenant=system.tenant, session_id=name, session_uid=str(uid))


@asynccontextmanager
async def verifying(system: System, database_url: str) -> AsyncIterator[Verifier]:
    """As the role that owns the schema."""
    owner = system.settings.database.model_copy(update={"url": database_url})
    async with Shadow.open(owner) as shadow:
        yield Verifier(shadow, Histories(system.temporal), system.settings)


def told(verdict: Verdict) -> list[str]:
    return [f"{one.what}: {one.row}: expected {one.expected[:300]!r}, found {one.found[:300]!r}" for one in verdict.differences]


async def rolled(system: System, name: str) -> None:
    """The session continues as new."""
    handle = system.workflow(name)
    before = (await handle.describe()).run_id
    await handle.signal("roll")

    async def over() -> bool:
        return (await handle.describe()).run_id != before

    await system.until(over)


async def steer(system: System, name: str, words: str, **fields: Any) -> None:
    steering = SteerInput(id=words.replace(" ", "-"), content=words, **asked(system, **fields))
    await system.workflow(name).execute_update("steer", steering)


async def used_everything(system: System, name: str, *, roll: bool = False) -> None:
    """Branches, batches, refused arguments, failures and retries, steering, cards, cancels, repair, files, context. `roll`: in three runs."""
    first = await _tools_and_hosts(system, name, roll=roll)
    await _branches_and_failures(system, name, first)
    await _interrupted_and_steered(system, name)
    card = CardInput(id=f"k-{name}", content="A card.", segments=[COMPONENT], digest="d", **asked(system))
    await system.workflow(name).execute_update("card", card)
    if roll:
        await rolled(system, name)
    await system.workflow(name).execute_update("amend", AmendInput(fields=("title",), title="A title", **asked(system)))
    system.script.then(calls(("h4", "ask_user", {"question": "c"})))
    await system.chat(name, "after the card")
    assert (await system.post(f"/sessions/{name}/repair")).status_code == 200
    await system.workflow(name).execute_update("amend", AmendInput(fields=("active_leaf_id",), active_leaf_id=first, **asked(system)))
    system.script.then(calls(("h5", "open_page", {"url": "z"}), ("h6", "ask_user", {"question": "d"}), text="Waiting."))
    await system.chat(name, "and wait")
    await steer(system, name, "queued words")


async def _tools_and_hosts(system: System, name: str, *, roll: bool) -> str:
    """Answers the first answer."""
    then = system.script.then
    then(says("Hel", "lo.", thinking="Hm."))
    first: str = (await system.chat(name, "one", attachments=[FILE], host_context=context("x"), subject="order-7"))["message_id"]
    then(
        calls(("c1", "add", {"a": 1, "b": 2}), ("c2", "broken", {}), text="Adding."),
        calls(("c3", "add", {"a": "x"}), ("c4", "wait_for", {"seconds": 0.1}), ("h0", "open_page", {"nonsense": 1})),
        calls(
            ("h1", "open_page", {"url": "a"}), ("h2", "ask_user", {"question": "b"}), ("c5", "add", {"a": 1, "b": 1}), text="Two things."
        ),
    )
    await system.chat(name, "do it")
    await steer(system, name, "while waiting")
    await system.resume(name, "h1", {"opened": True}, host_context=context("y"))
    if roll:
        await rolled(system, name)
    then(says("Done."))
    await system.resume(name, "h2", "no", tool_outcome="denied")
    then(calls(("h3", "open_page", {"url": "a"})), says("Never mind."))
    await system.chat(name, "ask")
    await system.chat(name, "go on")
    return first


async def _branches_and_failures(system: System, name: str, first: str) -> None:
    system.script.then(says("Other branch."))
    await system.chat(name, "branch", parent_id=first)
    system.script.then(raises(ModelHTTPError(401, "m"), "Oh"), says("Fine."))
    failed = await system.chat(name, "fail")
    assert (await system.post(f"/sessions/{name}/turns/{failed['turn_id']}/retry")).status_code == 200


async def _interrupted_and_steered(system: System, name: str) -> None:
    go_on = asyncio.Event()
    system.script.then(hangs("Half"))
    sent = await system.running(name, "stop me")
    await system.post(f"/sessions/{name}/cancel")
    await sent
    system.script.then(waits(go_on, "Some", "thing."), says("With it."))
    sent = await system.running(name, "long")
    await steer(system, name, "be brief")
    go_on.set()
    await sent
