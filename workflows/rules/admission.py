"""Which inputs fit a session's state, and the one refusal for each that does not (sessions.md)."""

import re

from workflows.contracts.carried import SessionState
from workflows.contracts.errors import Refusal
from workflows.contracts.inputs import CardInput, ContinuationInput, Input, MessageInput, RetryInput, SteerInput
from workflows.model.state import Head, LastTurn
from workflows.rules.attachments import check_files

STATUS_OF_OUTCOME = {"success": "completed", "failed": "failed", "denied": "denied", "expired": "unknown"}

CLOSED = Refusal("closed", "the session is being deleted; its id is free in a moment")
"""Whoever meets this sends again: the next one begins a new session, or finds none."""

ROLLING = Refusal("rolling", "the session is about to continue as new; send the same again in a moment")
"""Whoever meets this sends again. It never reaches a user: the api does."""

MOST_COMPONENTS = 16
ID = re.compile(r"[A-Za-z0-9._:-]{1,64}")
UNKEPT = re.compile("[\x00\ud800-\udfff]")


def check_shape(message: MessageInput | SteerInput) -> None:
    """Refuses what no row could hold. The api checks this before; a signal comes past it."""
    parent, subject = (message.parent_id, message.subject) if isinstance(message, MessageInput) else (None, None)
    for name, value in (("id", message.id or None), ("turn_id", message.turn_id), ("parent_id", parent)):
        check_id(name, value)
    for name, text in (("content", message.content), ("subject", subject or ""), ("profile", message.profile or "")):
        check_text(name, text)
    if isinstance(message, MessageInput):
        check_files(message.attachments)


def check_id(name: str, value: str | None) -> None:
    """Refuses what is no id (R66)."""
    if value is not None and (not ID.fullmatch(value) or value in (".", "..")):
        raise Refusal("bad_request", f"{name} must be 1 to 64 characters of A-Za-z0-9._:-")


def check_text(name: str, text: str) -> None:
    """Refuses text that no row could hold."""
    if UNKEPT.search(text):
        raise Refusal("bad_request", f"{name} holds a NUL character or half a surrogate pair")


def check_caller(asked: Input) -> None:
    """Refuses a principal that no row could hold as an owner. The api never has such a one; who reaches Temporal may say what he likes."""
    check_text("principal", asked.principal)


def check_owner(head: Head, asked: Input) -> None:
    """Refuses who may not see the session exactly as if there were none (R38)."""
    if not head.born or not (asked.caller.is_admin or head.owner == asked.principal):
        raise Refusal("not_found", "there is no such session")


def check_revision(revision: int, asked: Input) -> None:
    """Refuses a write that was prepared for another state of the session. What is accepted and has yet to begin counts (S39)."""
    if asked.expected_revision is not None and asked.expected_revision != revision:
        raise Refusal(
            "conversation_conflict",
            f"the session is at revision {revision}, not {asked.expected_revision}; read it again and decide anew",
            revision=revision,
        )


def check_binding(head: Head, message: MessageInput | CardInput | SteerInput) -> None:
    """Refuses another profile or subject than the session is bound to (R52, R53)."""
    binding = head.binding
    if binding.subject is None or not head.born:
        return
    if message.profile and message.profile != binding.profile:
        raise Refusal("binding_conflict", f"the session is bound to profile {binding.profile!r}")
    if not isinstance(message, SteerInput) and message.subject and message.subject != binding.subject:
        raise Refusal("binding_conflict", "the session is bound to another subject")


def check_parent(state: SessionState, message: MessageInput) -> None:
    """Refuses a parent that neither the rows nor the recent past know (R62). A signal's parent is judged by the opening transaction."""
    parent = message.parent_id
    if parent is None or message.rows is None or parent == state.head.leaf_id:
        return
    found_in_rows = message.rows.parent and message.rows.session_uid == state.head.session_uid
    recent = parent in state.recent or any(parent == known.message_id for known in state.recent.values())
    if not found_in_rows and not recent:
        raise Refusal("unknown_parent", f"there is no message {parent!r} in this session", parent_id=parent)


def check_same_body(known_id: str, first: str, second: str) -> None:
    """Refuses an id that came before with another body (R63, R154)."""
    if first != second:
        raise Refusal("duplicate_id", f"id {known_id!r} was used with another body; nothing was changed")


def check_idle(head: Head, live: bool) -> None:
    """Refuses a card while a turn runs or an action is pending (R172)."""
    if live or head.batch:
        raise Refusal("busy", "a turn is running" if live else "a host action is pending")


def check_card_shape(card: CardInput) -> None:
    """Refuses what is no card: 1 to 16 components (R175)."""
    check_id("id", card.id or None)
    if not 1 <= len(card.segments) <= MOST_COMPONENTS or any(segment.get("kind") != "component" for segment in card.segments):
        raise Refusal("bad_request", f"a card has 1 to {MOST_COMPONENTS} segments of kind component")
    check_text("content", card.content)


def check_busy(head: Head, message: MessageInput, live: bool) -> None:
    """Refuses a message that does not want to disturb."""
    if message.when_busy == "reject" and (live or head.batch):
        raise Refusal("busy", "a turn is running" if live else "a host action is pending")


def check_new_ids(state: SessionState, message: MessageInput) -> None:
    """Refuses an id that names something else in this session already (R63)."""
    taken = {known.message_id for known in state.recent.values()}
    if message.id in taken or message.id == message.parent_id:
        raise Refusal("duplicate_id", f"{message.id!r} is the id of another message of this session")


def check_new_turn(turn_id: str | None, known: bool) -> None:
    """Refuses a turn id that names another turn of this session: its answer would be taken for this input's."""
    if turn_id and known:
        raise Refusal("duplicate_id", f"{turn_id!r} is the id of another turn of this session")


def already_recorded(call_id: str, status: str) -> Refusal:
    """The refusal of a second result (R114); says in words and in `recorded_status` what the first one was."""
    return Refusal(
        "already_recorded",
        f"the result of call {call_id!r} is recorded already, with status {status}; it is not changed",
        recorded_status=status,
        tool_call_id=call_id,
    )


def check_not_recorded(state: SessionState, continuation: ContinuationInput) -> None:
    """Refuses a result for a call that has one."""
    if status := state.recorded.get(continuation.tool_call_id):
        raise already_recorded(continuation.tool_call_id, status)


def check_pause(head: Head, continuation: ContinuationInput) -> None:
    """Refuses a pause token that was made for an earlier session of this id, an earlier owner, or other arguments (L16)."""
    pause = continuation.pause
    if pause is None:
        return
    if head.session_uid != pause.session_uid:
        raise Refusal("not_found", "there is no such session")
    if head.owner != pause.owner:
        raise Refusal("forbidden", "the session has another owner than when this pause token was made")
    for call in head.batch.calls if head.batch else ():
        if call.call_id == continuation.tool_call_id and call.arguments_digest != pause.arguments_digest:
            raise Refusal("call_mismatch", "the call has other arguments than when this pause token was made")


def check_pending(head: Head, continuation: ContinuationInput) -> None:
    """Refuses a result that nobody waits for (R120) or that is not the pending call's."""
    batch = head.batch
    if batch is None or batch.pending is None:
        raise Refusal("not_pending", "no host action is pending in this session")
    open_ids = [call.call_id for call in batch.open]
    wanted = open_ids if batch.handover == "all" else open_ids[:1]
    if continuation.tool_call_id not in wanted:
        raise Refusal(
            "call_mismatch",
            f"the pending call is {open_ids[0]!r}, not {continuation.tool_call_id!r}",
            pending_call_id=open_ids[0],
        )


def retryable(head: Head, retry: RetryInput) -> LastTurn:
    """The turn that a retry may run again; refuses any other."""
    last = head.last_turn
    if last is None or last.turn.turn_id != retry.turn_id:
        if retry.rows is None or retry.rows.turn:
            raise Refusal("not_retryable", "only the session's last turn can be retried")
        raise Refusal("not_found", f"there is no turn {retry.turn_id!r} in this session")
    if last.error is None:
        raise Refusal("not_retryable", "the turn did not fail")
    if not last.error.retry_allowed:
        raise Refusal("not_retryable", f"a turn that ended with {last.error.type} can't be retried; send a new message")
    return last
