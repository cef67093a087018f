"""Streamed text may be cut inside a surrogate pair and may hold NUL; what is shown may not."""

from hypothesis import given
from hypothesis import strategies as st

from activities.llm.text import Pieces, shown, well_formed

ANY_TEXT = st.text(alphabet=st.characters(exclude_categories=()), max_size=30)


def halves(text: str) -> str:
    """The text as UTF-16 code units, each a character of its own."""
    units = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(int.from_bytes(units[n : n + 2], "little")) for n in range(0, len(units), 2))


@given(st.lists(ANY_TEXT, max_size=8))
def test_r77_pieces_join_to_the_whole_text_and_each_is_well_formed(texts: list[str]) -> None:
    pieces = Pieces()
    sent = [pieces(text) for text in texts] + [pieces.rest()]
    for piece in sent:
        piece.encode()
        assert "\x00" not in piece
    assert "".join(sent) == shown("".join(texts))


@given(st.text(max_size=30))
def test_r77_a_text_cut_into_code_units_comes_out_whole(text: str) -> None:
    pieces = Pieces()
    assert "".join([pieces(unit) for unit in halves(text)]) + pieces.rest() == text.replace("\x00", "\ufffd")


def test_r77_half_a_pair_is_replaced_and_other_text_is_untouched() -> None:
    assert well_formed("a\ud83d") == "a\ufffd"
    assert well_formed("\ud83d\ude00") == "😀"
    assert well_formed("a\x00b") == "a\x00b"
    assert shown("a\x00b") == "a\ufffdb"
