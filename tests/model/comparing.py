"""What a real session shows, in the words of the reference model; and what the reference model shows."""

import json
from typing import Any

from tests.model.records import UNNAMED, Message, Turn
from tests.model.reference import Session
from tests.system import System
from workflows.contracts.inputs import RecordedRefusal
from workflows.rules.state import KEPT_REFUSALS

Shown = dict[str, Any]


class Names(dict[str | None, str | None]):
    """Names by real ids. What came after they were read keeps its id: the comparison fails, and is made again."""

    def __missing__(self, real: str | None) -> str | None:
        return real


async def names_of(system: System, uid: Any, model: Session) -> Names:
    """The reference model's names of a session's messages and turns, by their real ids."""
    given = {turn.number: turn.id for turn in model.turns.values() if turn.number}
    rows = await system.conn.fetch("select turn_id, number from turns where session_uid = $1", uid)
    turns = {row["turn_id"]: given.get(row["number"], row["turn_id"]) for row in rows if given.get(row["number"], "").startswith(UNNAMED)}
    rows = await system.conn.fetch("select id, role, turn_id from messages where session_uid = $1", uid)
    made = {row["id"]: f"@{turns.get(row['turn_id'], row['turn_id'])}" if row["role"] == "assistant" else row["id"] for row in rows}
    return Names(turns | made)


async def shown_by(system: System, model: Session, caller: str, api: int) -> Shown:
    """Everything that a session's owner can read of it, and the rows behind it."""
    session = model.name
    headers = {"x-test-principal": caller}
    answer = await system.apis[api].get(f"/api/sessions/{session}", headers=headers)
    if answer.status_code == 404:
        return {}
    view = answer.json()
    uid = await system.conn.fetchval("select session_uid from sessions where tenant = $1 and session_id = $2", system.tenant, session)
    rows = (await system.get(f"/sessions/{session}/messages", api=api, headers=headers))["messages"]
    tree = (await system.get(f"/sessions/{session}/tree", api=api, headers=headers))["messages"]
    names = await names_of(system, uid, model)
    pending, live = view["pending_action"], view["live_turn"]
    return {
        "owner": view["owner_id"],
        "bound": (view["profile"], view["subject"]),
        "status": view["status"],
        "leaf": names[view["active_leaf_id"]],
        "revision": view["revision"],
        "number": view["turn_number"],
        "count": view["message_count"],
        "pending": [pending["tool_call_id"], *(call["call_id"] for call in pending["queued"])] if pending else [],
        "asks": names[pending["assistant_message_id"]] if pending else None,
        "live": names[live["turn_id"]] if live else None,
        "path": [_row(row, names) for row in rows if not row.get("steering")],
        "tree": sorted((names[row["id"]], names[row["parent_id"]], row["role"], row["content"]) for row in tree),
        "turns": await _turns(system, uid, names),
        "steering": await _steering(system, uid, names),
        "clock": await _rung(system, uid),
        "refusals": await _refusals(system, session) if model.refusals else [],
    }


async def _rung(system: System, uid: Any) -> tuple[int, int]:
    types = ("host_action.reminder", "host_action.expired")
    rows = await system.conn.fetch("select type, count(*) from events where session_uid = $1 and type = any($2) group by 1", uid, types)
    counts = {row["type"]: row["count"] for row in rows}
    return counts.get(types[0], 0), counts.get(types[1], 0)


async def _refusals(system: System, session: str) -> list[tuple[str, str]]:
    found = await system.workflow(session).query("refusals", result_type=list[RecordedRefusal])
    return [(refusal.what, refusal.code) for refusal in found]


def _row(row: dict[str, Any], names: Names) -> tuple[Any, ...]:
    tools = [
        (tool["id"], tool["name"], tool.get("outcome"), tool.get("status"))
        for segment in row["segments"]
        if segment["kind"] == "tool_group"
        for tool in segment["tools"]
    ]
    error = row["error"]["type"] if row["error"] else None
    return names[row["id"]], names[row["parent_id"]], row["role"], row["content"], error, tools


async def _turns(system: System, uid: Any, names: Names) -> list[tuple[Any, ...]]:
    rows = await system.conn.fetch("select * from turns where session_uid = $1 order by number", uid)
    return [_turn(row, names) for row in rows]


def _turn(row: Any, names: Names) -> tuple[Any, ...]:
    final = json.loads(row["final"]) if row["final"] else None
    error = json.loads(row["error"])["type"] if row["error"] else None
    turn_id = names[row["turn_id"]]
    ended = (turn_id, *ended_of(final)[1:]) if final else None
    return turn_id, row["number"], row["attempt"], row["kind"], row["state"], error, names[row["message_id"]], ended


def ended_of(final: dict[str, Any]) -> tuple[Any, ...]:
    """A turn's answer, but for what the runtime chooses."""
    pending = final["pending_tool_call"]
    calls = (pending["call_id"], *(call["call_id"] for call in pending["queued"])) if pending else ()
    error = final["error"]["type"] if final["error"] else None
    counts = final["turn_number"], final["attempt"], final["revision"]
    return final["turn_id"], final["user_message_id"], *counts, final["content"], calls, error


async def _steering(system: System, uid: Any, names: Names) -> list[tuple[Any, ...]]:
    rows = await system.conn.fetch("select * from steering where session_uid = $1 order by number", uid)
    return [(row["id"], row["status"], names[row["message_id"]]) for row in rows]


def shown_in(model: Session) -> Shown:
    """The same of the reference model."""
    if model.owner is None:
        return {}
    begun = sorted((turn for turn in model.turns.values() if turn.number and turn.state != "waits"), key=lambda turn: turn.number)
    return {
        "owner": model.owner,
        "bound": (model.profile, model.subject),
        "status": model.status,
        "leaf": model.leaf,
        "revision": model.revision,
        "number": model.number,
        "count": len(model.messages),
        "pending": model.batch,
        "asks": model.calls[model.batch[0]].message if model.batch else None,
        "live": model.live.id if model.live else None,
        "path": [_message(model, message) for message in model.path(model.leaf)],
        "tree": sorted((one.id, one.parent, one.role, one.content) for one in model.messages.values()),
        "turns": [_model_turn(turn) for turn in begun],
        "steering": [(one.id, "delivered" if one.message else "pending", one.message) for one in model.steering.values()],
        "clock": (model.reminders, model.expired),
        "refusals": model.refusals[-KEPT_REFUSALS:],
    }


def _message(model: Session, one: Message) -> tuple[Any, ...]:
    tools = [(call.id, call.tool, *_outcome(call.state)) for call in model.calls.values() if call.message == one.id]
    return one.id, one.parent, one.role, one.content, one.error, tools


def _outcome(state: tuple[str, str | None] | None) -> tuple[str | None, str | None]:
    return (None, None) if state is None or state[0] == "success" else state


def _model_turn(turn: Turn) -> tuple[Any, ...]:
    ended = model_ended(turn) if turn.state != "running" else None
    return turn.id, turn.number, turn.attempt, turn.kind, turn.state, turn.error, turn.message, ended


def model_ended(turn: Turn) -> tuple[Any, ...]:
    """A turn's answer as the reference model has it."""
    return turn.id, turn.user, turn.number, turn.attempt, turn.revision, "".join(turn.said), turn.pending, turn.error
