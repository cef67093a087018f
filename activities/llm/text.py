"""Text that every store and every wire takes."""

import re

_SURROGATE = re.compile(r"[\ud800-\udfff]")


def well_formed(text: str) -> str:
    """Joins surrogate pairs that came in two halves and replaces a half that stayed alone. Other text is returned as it is."""
    if _SURROGATE.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def shown(text: str) -> str:
    """The text as it is displayed and kept in text columns, which can't hold NUL."""
    return well_formed(text).replace("\x00", "\ufffd")


class Pieces:
    """Makes the pieces of one streamed text well-formed, each by itself: a piece that ends in half a pair keeps it for the next."""

    def __init__(self) -> None:
        self._held = ""

    def __call__(self, piece: str) -> str:
        text = self._held + piece
        self._held = text[-1:] if "\ud800" <= text[-1:] <= "\udbff" else ""
        return shown(text[: len(text) - len(self._held)])

    def rest(self) -> str:
        """What is held when nothing follows."""
        held, self._held = self._held, ""
        return shown(held)
