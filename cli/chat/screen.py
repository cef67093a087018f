"""What is shown of a turn."""

import json
import os
import re
import sys
from dataclasses import dataclass, field
from typing import Any, TextIO

from cli.chat.client import Event

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_WIDTH = 200


@dataclass
class Screen:
    """Text on `out`, everything about it (tools, notes, errors) on `notes`; dim where that is a terminal."""

    out: TextIO = field(default_factory=lambda: sys.stdout)
    notes: TextIO = field(default_factory=lambda: sys.stdout)
    _column: int = 0
    _dimmed: bool = False

    def show(self, event: Event) -> None:
        """An event as it comes in."""
        data = event.data
        match event.type:
            case "text.delta":
                self.text(data["text"])
            case "thinking.delta":
                self.text(data["text"], dim=True)
            case "tool.call" if data.get("category") != "host":
                self.note(f"· {data['tool_name']} {brief(data.get('arguments'))}")
            case "tool.result":
                self.note(f"  → {brief(data.get('output'))}")
            case "tool.error":
                self.note(f"  ✗ {brief(data.get('error'))}")
            case "step.restarted":
                self.note("(this step began again; its text is repeated)")
            case "turn.error":
                self.note(f"! {data['error']['type']}: {data['error']['message']}")
            case _:
                pass

    def text(self, text: str, *, dim: bool = False) -> None:
        """A piece of running text. Control characters of a model never reach the terminal."""
        if dim != self._dimmed:
            self.fresh_line()
            self._dimmed = dim
        stream = self.notes if dim else self.out
        clean = _CONTROL.sub("", text)
        stream.write(faint(clean, stream) if dim else clean)
        stream.flush()
        if clean:
            self._column = 0 if clean.endswith("\n") else 1

    def note(self, text: str) -> None:
        """A line of its own."""
        self.fresh_line()
        self.notes.write(faint(_CONTROL.sub("", text), self.notes) + "\n")
        self.notes.flush()

    def line(self, text: str) -> None:
        """A line of its own, not dimmed."""
        self.fresh_line()
        self.notes.write(_CONTROL.sub("", text) + "\n")
        self.notes.flush()

    def fresh_line(self) -> None:
        """Ends a line that was begun."""
        if self._column:
            stream = self.notes if self._dimmed else self.out
            stream.write("\n")
            stream.flush()
        self._column = 0

    def pending(self, call: dict[str, Any]) -> None:
        """What the host is asked for, whole: whoever answers sees exactly what will run."""
        self.line(f"The assistant asks its host: {call['tool_name']}")
        for row in json.dumps(call["arguments"], indent=2, ensure_ascii=False).splitlines():
            self.line(f"  {row}")
        if call.get("queued"):
            self.line(f"  then: {', '.join(waiting['tool_name'] for waiting in call['queued'])}")


def faint(text: str, stream: TextIO) -> str:
    """The text dimmed, if `stream` is a terminal that wants it (NO_COLOR)."""
    if text and stream.isatty() and not os.environ.get("NO_COLOR"):
        return f"\x1b[2m{text}\x1b[0m"
    return text


def brief(value: Any) -> str:
    """A JSON value in one short line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"
