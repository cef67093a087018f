"""Sequences of inputs that once came to something else than the reference model says."""

from tests.model.records import OTHER
from tests.model.sending import Step

REGRESSIONS: dict[str, list[Step]] = {
    "a_gate_a_card_and_a_move": [
        (0, "message", {}),
        (0, "message", {"plan": ("gate",)}),
        (0, "release", {}),
        (0, "card", {}),
        (0, "move", {"leaf": 0}),
    ],
    "a_turn_id_that_is_taken": [
        (0, "message", {"plan": ("host1",)}),
        (0, "resume", {"turn": "taken"}),
        (0, "message", {"turn": "taken"}),
        (0, "resume", {}),
        (0, "message", {"turn": "taken"}),
        (0, "message", {}),
    ],
    "a_retry_after_a_card": [
        (0, "message", {"plan": ("boom",)}),
        (0, "card", {}),
        (0, "retry", {}),
        (0, "message", {}),
    ],
    "a_retry_is_expected_by_others": [
        (0, "message", {"plan": ("boom",)}),
        (0, "retry", {"plan": ("gate",), "revision": 0}),
        (0, "message", {"revision": -1}),
        (0, "release", {}),
    ],
    "a_cancelled_result_within_a_batch": [
        (0, "message", {"plan": ("host3",)}),
        (0, "cancel", {"which": "new"}),
        (0, "resume", {"turn": "tombstone"}),
        (0, "resume", {"which": 1}),
        (0, "message", {}),
    ],
    "a_deadline_within_a_batch_after_a_jump": [
        (0, "message", {}),
        (0, "jump", {"hours": 11.0}),
        (0, "message", {"plan": ("both",)}),
        (0, "jump", {"hours": 5.1}),
        (0, "jump", {"hours": 5.1}),
        (0, "message", {"plan": ("both",), "handover": "all"}),
        (0, "jump", {"hours": 1100.0}),
        (0, "message", {}),
    ],
    "a_restart_while_a_turn_is_held": [
        (0, "message", {"plan": ("server", "gate"), "key": True}),
        (1, "message", {"plan": ("gate", "host1")}),
        (0, "restart", {}),
        (0, "again", {}),
        (0, "release", {}),
        (0, "again", {}),
        (0, "again", {"other": True}),
        (1, "cancel", {"key": True}),
        (1, "again", {}),
    ],
    "steering_that_the_result_could_not_take": [
        (0, "message", {"plan": ("host1",)}),
        (0, "steer", {"profile": OTHER}),
        (0, "resume", {}),
        (0, "message", {}),
    ],
    "steering_for_another_profile_among_what_a_step_takes": [
        (0, "message", {"plan": ("server", "gate")}),
        (0, "steer", {}),
        (0, "steer", {"profile": OTHER}),
        (0, "steer", {}),
        (0, "release", {}),
    ],
    "a_restart_while_steering_waits_for_a_held_turn": [
        (0, "message", {"plan": ("host1",)}),
        (0, "resume", {"plan": ("server", "gate")}),
        (0, "steer", {}),
        (0, "restart", {}),
        (0, "release", {}),
    ],
    "a_keyed_result_for_a_call_of_the_servers_under_a_turn_id_that_is_taken": [
        (0, "message", {"plan": ("server",)}),
        (0, "resume", {"which": 0, "key": True, "turn": "taken"}),
        (0, "resume", {"which": 0, "key": True, "revision": -1}),
    ],
    "two_deadlines_that_follow_each_other_within_a_jump": [
        (0, "message", {"plan": ("both",)}),
        (0, "jump", {"hours": 11.3}),
    ],
}
