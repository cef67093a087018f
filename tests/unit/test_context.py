"""What a worker keeps of conversations: bounded by their number and by their size."""

from activities.context import Conversations, Path, PathKey
from activities.llm.translate import dump, user_request

AT = "2026-01-02T03:04:05+00:00"


def key(number: int) -> PathKey:
    return PathKey("s", f"m{number}", number, None, None)


def kept(paths: Conversations) -> list[int]:
    return [known.count for known in paths._paths]


def test_large_conversations_push_out_others() -> None:
    small, large = dump(user_request("x" * 10, None, AT)), dump(user_request("x" * 5000, None, AT))
    paths = Conversations(kept_characters=8000)
    for number in range(5):
        paths.extend(key(number), Path(), [small])
    assert kept(paths) == [0, 1, 2, 3, 4]
    paths.extend(key(5), Path(), [large])
    paths.extend(key(6), Path(), [large])
    assert kept(paths) == [6]
    paths.extend(key(6), Path(), [small])
    for number in range(7, 10):
        paths.extend(key(number), Path(), [small])
    assert kept(paths) == [6, 7, 8, 9]


def test_one_that_is_larger_than_all_together_is_not_kept() -> None:
    paths = Conversations(kept_characters=100)
    paths.extend(key(1), Path(), [dump(user_request("x" * 5000, None, AT))])
    assert kept(paths) == []


def test_a_path_that_grew_takes_the_place_of_what_it_grew_from() -> None:
    paths = Conversations(kept_messages=20)
    grown = Path()
    for number in range(15):
        paths.extend(key(number), grown, [dump(user_request(str(number), None, AT))])
        grown = paths._paths[key(number)]
    assert kept(paths) == [14] and len(grown.messages) == 15
    paths.extend(key(100), Path(), [dump(user_request("another", None, AT))])
    assert kept(paths) == [14, 100], "what a path shares with its former states counts once"
