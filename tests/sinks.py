"""Who watches a model's answer arrive in a test."""

import json
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic_ai.messages import ToolCallPart


@dataclass
class Watcher:
    """Keeps what a ModelStream reported, in order: (index, kind, text), or ("calls", [(name, arguments)])."""

    seen: list[tuple[Any, ...]] = field(default_factory=list)

    async def piece(self, index: int, kind: Literal["text", "thinking"], text: str) -> None:
        self.seen.append((index, kind, text))

    async def calls(self, parts: list[ToolCallPart]) -> None:
        self.seen.append(("calls", [(part.tool_name, json.loads(part.args_as_json_str())) for part in parts]))

    def joined(self) -> list[tuple[Any, ...]]:
        """The same with the pieces of one part joined, where nothing came between."""
        result: list[tuple[Any, ...]] = []
        for one in self.seen:
            if len(one) == 3 and result and result[-1][:2] == one[:2]:
                result[-1] = (*one[:2], result[-1][2] + one[2])
            else:
                result.append(one)
        return result
