from __future__ import annotations

import pytest

from anabranch.protocol.limits import LIVE_HOLD_MS
from anabranch.protocol.live_hold import Hold
from anabranch.protocol.replica_states import ReplicaState

STABLE, FAILING = ReplicaState.STABLE, ReplicaState.UP_FAILURE


def test_held_only_while_a_sibling_is_stable_and_not_for_long() -> None:
    hold = Hold()
    both = {"0": FAILING, "1": STABLE}
    assert hold.left_ms("0", both, 5, 1_000) == LIVE_HOLD_MS
    assert hold.left_ms("0", both, 5, 1_000 + LIVE_HOLD_MS - 1) == 1
    assert hold.left_ms("0", both, 5, 1_000 + LIVE_HOLD_MS) == 0
    assert hold.left_ms("0", both, 6, 1_000 + LIVE_HOLD_MS) == LIVE_HOLD_MS


@pytest.mark.parametrize("states", [{}, {"0": STABLE}, {"0": STABLE, "1": FAILING}, {"0": FAILING, "1": ReplicaState.FAILURE}])
def test_otherwise_shown_at_once(states: dict[str, ReplicaState]) -> None:
    assert Hold().left_ms("0", states, 5, 1_000) == 0


def test_the_wait_begins_when_the_bucket_could_be_shown() -> None:
    hold = Hold()
    assert hold.left_ms("0", {"1": FAILING}, 5, 1_000) == 0
    assert hold.left_ms("0", {"1": STABLE}, 5, 1_050) == LIVE_HOLD_MS - 50
