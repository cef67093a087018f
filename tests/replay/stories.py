"""Stories whose histories are kept: what sessions go through, told to the whole system. Between them they use all that a workflow can do."""

from tests.replay import told_hosts, told_lives, told_turns

STORIES = {**told_turns.STORIES, **told_hosts.STORIES, **told_lives.STORIES}
SEALED = told_lives.SEALED
"""Those whose payloads are encrypted or elsewhere: they replay only with `told_lives.KEYS` and the payloads that are kept beside them."""
