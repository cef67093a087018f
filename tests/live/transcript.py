"""The record of a live conversation, for people."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

HEADING = """\
# A conversation with a real model

The record of one `make live`: SmolLM2-135M-Instruct, 98 MB of weights, run by llama.cpp on one thread, behind OpenAI's chat completions
wire (`OUTLAST_MODEL=openai-chat:smollm2-135m` and `OPENAI_BASE_URL`). No network is used. So small a model shows that the wire holds, not
judgement: which message leads to a call is a fixed rule of its server (it calls the tool that the user names, tests/live/prompt.py); the
arguments and all words are the model's own. `make live RECORD=docs/live-run.md` writes this page again.
"""


@dataclass
class Transcript:
    """Markdown, in the order of events."""

    lines: list[str] = field(default_factory=list)

    def chapter(self, title: str) -> None:
        """A new part."""
        self.lines += ["", f"## {title}"]

    def told(self, text: str) -> None:
        """What happened."""
        self.lines += ["", text]

    def said(self, who: str, text: str, remark: str = "") -> None:
        """Somebody's words, as they were."""
        quoted = [f"> {line}".rstrip() for line in text.splitlines()]
        self.lines += ["", f"**{who}**{f' ({remark})' if remark else ''}:", "", *quoted]

    def showed(self, what: Mapping[str, Any]) -> None:
        """A body, as JSON."""
        self.lines += ["", "```json", json.dumps(what, ensure_ascii=False), "```"]

    def measured(self, requests: Iterable[Mapping[str, Any]]) -> None:
        """A row for each request that the model's server got."""
        self.chapter("What the model did")
        self.lines += ["", "| request | prompt tokens | first token after | answer tokens | tokens/s | end |", "|---|---|---|---|---|---|"]
        for number, one in enumerate(requests, 1):
            usage, writing = one["usage"], one["seconds"] - one["first_seconds"]
            speed = f"{(usage['completion_tokens'] - 1) / writing:.0f}" if writing > 0 else ""
            first = f"{one['first_seconds']:.2f} s"
            end = one["end"] or "its client was killed"
            self.lines.append(f"| {number} | {usage['prompt_tokens']} | {first} | {usage['completion_tokens']} | {speed} | {end} |")

    @property
    def page(self) -> str:
        """The whole record."""
        return HEADING + "\n".join(self.lines) + "\n"


__all__ = ["HEADING", "Transcript"]
