"""Texts of a given length."""

ANSWER_CHARACTERS = 400


def words(characters: int, mark: str = "") -> str:
    """A text of exactly so many characters; `mark` makes it one of its kind."""
    return (mark + "the quick brown fox jumps over the lazy dog " * (characters // 44 + 1))[:characters]
