"""What a model is told before the conversation, and the record of it that stays when the text is gone."""

import hashlib
from dataclasses import dataclass

from pydantic_ai.messages import InstructionPart

from profiles import Profile
from workflows.contracts.steps import PromptSource


@dataclass(frozen=True)
class PromptPart:
    """A stable part of a prompt: where it comes from, under which name, and its text. Its version is the text's own."""

    source: str
    name: str
    text: str

    @property
    def sha256(self) -> str:
        """Hash of the text's UTF-8 bytes, hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def origin(self) -> PromptSource:
        """Where it comes from."""
        return PromptSource(source=self.source, name=self.name, sha256=self.sha256)


def prompt_parts(profile: Profile) -> list[PromptPart]:
    """The stable parts of a profile's prompt, in order; none if it has no instructions."""
    return [PromptPart("profile", profile.name, profile.instructions)] if profile.instructions.strip() else []


def instructions(parts: list[PromptPart]) -> list[InstructionPart]:
    """The parts as a request takes them."""
    return [InstructionPart(content=part.text) for part in parts]
