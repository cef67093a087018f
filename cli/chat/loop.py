"""The conversation: a line from the person, the turn's events, what the host is asked, and so on."""

import json
import re
import sys
from typing import Any

from cli.chat.client import ApiClient, ApiLost, ApiProblem, TurnStream, new_id, place_of
from cli.chat.screen import Screen
from cli.running import complain

SHOWN = 6
"""How many messages of an old session are shown."""

_REFUSED = re.compile(r"(?P<outcome>failed|denied)(?:$|:|(?=\s))\s*(?P<reason>.*)", re.IGNORECASE | re.DOTALL)

FAILED = 1
WAITS_FOR_HOST = 3


def run_chat(url: str, token: str | None = None, *, session: str | None, profile: str | None, once: str | None) -> int:
    """Talks until the person leaves. Returns the exit code: 0; 1 if the API is lost or, with `once`, the turn failed; with `once`
    3 if the turn waits for the host.
    """
    screen = Screen(notes=sys.stderr if once is not None else sys.stdout)
    client = ApiClient(url, screen.note, token)
    chat = Chat(client, screen, session or new_id(), profile)
    try:
        client.reach()
        old = bool(session) and chat.is_there()
        if once is not None:
            return chat.one_turn(once, old=old)
        chat.begin(old=old)
        chat.talk()
    except (KeyboardInterrupt, EOFError):
        screen.fresh_line()
    except (ApiProblem, ApiLost) as error:
        screen.fresh_line()
        complain(str(error))  # who talks to it has no use for the name of a class
        return FAILED
    finally:
        chat.farewell(asked=once is None)
    return 0


class Chat:
    """One session in one terminal (or pipe)."""

    def __init__(self, client: ApiClient, screen: Screen, session_id: str, profile: str | None) -> None:
        self.session_id = session_id
        self._client = client
        self._screen = screen
        self._profile = profile
        self._pending: dict[str, Any] | None = None
        self._begun = False

    def is_there(self) -> bool:
        """Whether the session has begun; one that has not begins with the first message. Raises ApiProblem and ApiLost."""
        try:
            self._client.get(place_of(self.session_id))
        except ApiProblem as problem:
            if problem.status != 404:
                raise
            self._screen.note(f"there is no session {self.session_id} yet: it begins with the first message")
            return False
        return True

    def one_turn(self, content: str, *, old: bool) -> int:
        """Sends one message and shows its turn."""
        final = self._show(self._client.message(self.session_id, content, None if old else self._profile))
        if final.get("error"):
            return FAILED
        if self._pending:
            self._screen.pending(self._pending)
            return WAITS_FOR_HOST
        return 0

    def begin(self, *, old: bool) -> None:
        """Shows where an old session stands: its last messages, a turn that runs, what waits for the host."""
        if sys.stdin.isatty():
            import readline  # noqa: F401  (input() edits lines with it)

            self._screen.note("Enter sends, Ctrl-C cancels a turn, Ctrl-D leaves.")
        if not old:
            return
        self._begun = True
        found = self._client.get(place_of(self.session_id))
        for message in self._client.get(f"{place_of(self.session_id)}/messages")["messages"][-SHOWN:]:
            self._screen.line(f"{message['role']}: {message['content']}" if message["content"] else f"{message['role']}: (no text)")
        if live := found.get("live_turn"):
            self._show(self._client.watch(self.session_id, live["turn_id"]))
        elif waiting := found.get("pending_action"):
            self._pending = {**waiting, "call_id": waiting["tool_call_id"]}

    def talk(self) -> None:
        """Until Ctrl-D, an idle Ctrl-C or the end of a pipe."""
        while True:
            try:
                self._answer_host() if self._pending else self._send_message()
            except ApiProblem as problem:
                self._screen.fresh_line()
                complain(str(problem))
                self._look_again()

    def farewell(self, *, asked: bool) -> None:
        """How to go on with the session another time."""
        if self._begun and asked and sys.stdin.isatty():
            self._screen.note(f"outlast chat --session {self.session_id}   goes on with this session")

    def _send_message(self) -> None:
        content = self._ask("> ")
        if content.strip():
            self._show(self._client.message(self.session_id, content, None if self._begun else self._profile))

    def _answer_host(self) -> None:
        assert self._pending is not None
        self._screen.pending(self._pending)
        if sys.stdin.isatty():
            self._screen.note("Answer with text or JSON, or `failed: why`, `denied: why`.")
        said = self._ask("result> ")
        if said.strip():
            outcome, result = parse_answer(said)
            self._show(self._client.answer(self.session_id, self._pending["call_id"], result, outcome))

    def _show(self, turn: TurnStream) -> dict[str, Any]:
        """Shows a turn to its end and returns its final answer. Ctrl-C cancels it; a second one leaves."""
        final: dict[str, Any] = {}
        cancelled = False
        while True:
            try:
                for event in turn.events():
                    self._begun = True
                    self._screen.show(event)
                    final = event.data if event.type == "turn.final" else final
                break
            except KeyboardInterrupt:
                if cancelled:
                    raise
                cancelled = True
                self._screen.note("cancelling; Ctrl-C again leaves")
                self._cancel(turn)
        self._screen.fresh_line()
        self._pending = final.get("pending_tool_call")
        return final

    def _cancel(self, turn: TurnStream) -> None:
        try:
            self._client.cancel(self.session_id, turn.turn_id)
        except ApiProblem as problem:
            if problem.status != 404:  # a session whose first message didn't arrive yet
                raise

    def _look_again(self) -> None:
        """After a refusal: what the session waits for now. Somebody else may have answered."""
        if not self._begun:
            return
        waiting = self._client.get(place_of(self.session_id)).get("pending_action")
        self._pending = waiting and {**waiting, "call_id": waiting["tool_call_id"]}

    def _ask(self, prompt: str) -> str:
        """A line from the person; no prompt in a pipe."""
        self._screen.fresh_line()
        return input(prompt if sys.stdin.isatty() else "")


def parse_answer(said: str) -> tuple[str, Any]:
    """(outcome, result) of what a person typed: `failed` or `denied` and a reason, a JSON value, or else text."""
    if found := _REFUSED.fullmatch(said.strip()):
        return found["outcome"].lower(), found["reason"] or found["outcome"].lower()
    try:
        return "success", json.loads(said)
    except ValueError:
        return "success", said.strip()
