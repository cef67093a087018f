"""Where messages go in the tree, compared with a plain parent-pointer model."""

import random

from hypothesis import given
from hypothesis import strategies as st

from workflows.rules.tree import Place, Placement, place_under


class _Tree:
    """Branches as rows would hold them, beside plain parent pointers."""

    def __init__(self) -> None:
        self.placed: list[Placement] = []
        self.parents: list[int | None] = []
        self.tips: dict[int, int] = {}
        self.chains: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}

    def place_of(self, message: int) -> Place:
        placed = self.placed[message]
        chain, depths = self.chains[placed.branch]
        return Place(
            branch=placed.branch,
            depth=placed.depth,
            tip_depth=self.tips[placed.branch],
            chain=chain,
            chain_depths=depths,
            newest_branch=max(self.tips),
        )

    def add(self, parent: int | None) -> None:
        placement = place_under(None if parent is None else self.place_of(parent))
        if placement.opens_branch:
            assert placement.branch not in self.tips
            self.chains[placement.branch] = (placement.chain, placement.chain_depths)
        self.tips[placement.branch] = placement.depth
        self.placed.append(placement)
        self.parents.append(parent)

    def path_by_parents(self, leaf: int) -> list[int]:
        path: list[int] = []
        at: int | None = leaf
        while at is not None:
            path.append(at)
            at = self.parents[at]
        return path[::-1]

    def path_by_chain(self, leaf: int) -> list[int]:
        placed = self.placed[leaf]
        chain, depths = self.chains[placed.branch]
        limits = dict(zip(chain, depths, strict=True))
        found = [
            number
            for number, other in enumerate(self.placed)
            if other.branch in limits and other.depth <= min(limits[other.branch], placed.depth)
        ]
        return sorted(found, key=lambda number: self.placed[number].depth)


@given(st.lists(st.integers(0, 2**16), max_size=60))
def test_l26_a_path_read_by_branches_is_the_path_of_parents(picks: list[int]) -> None:
    tree = _Tree()
    tree.add(None)
    for pick in picks:
        tree.add(pick % len(tree.placed))
    for leaf in range(len(tree.placed)):
        assert tree.path_by_chain(leaf) == tree.path_by_parents(leaf)


def test_l26_sixty_four_branches_and_depth_two_thousand() -> None:
    tree = _Tree()
    tree.add(None)
    for _ in range(2000):
        tree.add(len(tree.placed) - 1)
    chooser = random.Random(26)
    for _ in range(64):
        tree.add(chooser.randrange(len(tree.placed)))
    for leaf in (2000, *range(2001, 2065)):
        assert tree.path_by_chain(leaf) == tree.path_by_parents(leaf)


def test_r58_the_first_message_is_the_root() -> None:
    root = place_under(None)
    assert (root.branch, root.depth, root.opens_branch) == (0, 0, True)


def test_r61_a_second_child_opens_a_branch_and_keeps_its_sibling() -> None:
    tree = _Tree()
    tree.add(None)
    tree.add(0)
    tree.add(0)
    first, second = tree.placed[1], tree.placed[2]
    assert first.branch == 0
    assert second.branch == 1
    assert second.opens_branch
    assert tree.path_by_chain(1) == [0, 1]
    assert tree.path_by_chain(2) == [0, 2]
