"""Where a message goes in the tree: its branch, its depth, and what its path counts."""

from workflows.model.base import Record

WHOLE = 2**31 - 1
"""The depth up to which a branch belongs to its own paths: all of it."""


class Place(Record):
    """Where a message stands. `chain` are the branches of its path with, for each, the deepest depth that belongs to it."""

    branch: int
    depth: int
    count_all: int = 0
    count_user: int = 0
    count_assistant: int = 0
    tip_depth: int = 0
    chain: tuple[int, ...] = ()
    chain_depths: tuple[int, ...] = ()
    newest_branch: int = 0


class Placement(Record):
    """Where a new message goes. `opens_branch`: the branch is new and hangs on `chain`."""

    branch: int
    depth: int
    opens_branch: bool
    chain: tuple[int, ...] = ()
    chain_depths: tuple[int, ...] = ()


def place_under(parent: Place | None) -> Placement:
    """A child of the newest message of a branch lengthens the branch; any other child opens a branch of its own (R58, R61)."""
    if parent is None:
        return Placement(branch=0, depth=0, opens_branch=True, chain=(0,), chain_depths=(WHOLE,))
    depth = parent.depth + 1
    if parent.depth == parent.tip_depth:
        return Placement(branch=parent.branch, depth=depth, opens_branch=False)
    branch = parent.newest_branch + 1
    cut = tuple(parent.depth if link == parent.branch else deepest for link, deepest in zip(parent.chain, parent.chain_depths, strict=True))
    return Placement(branch=branch, depth=depth, opens_branch=True, chain=(*parent.chain, branch), chain_depths=(*cut, WHOLE))
