from __future__ import annotations

import pytest

from anabranch.protocol.control.replica_states import ReplicaState
from anabranch.protocol.edge.live_hold import Hold, Offer
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.limits import LIVE_HOLD_MS
from anabranch.protocol.log.records import BranchNumber
from anabranch.protocol.stage.availability import Policy, Waits

STABLE, FAILING = ReplicaState.STABLE, ReplicaState.UP_FAILURE
BOTH = {"0": FAILING, "1": STABLE}
SAVED_MS = 1_400
OLD, NEW = (3, 1), (3, 2)


def hold(policy: Policy = Policy.PROCESS, saved_ms: int = SAVED_MS) -> Hold:
    return Hold(Waits(2_500, 2_500 - saved_ms), policy)


def left_ms(
    held: Hold,
    now_ms: int,
    *,
    first: int = 5,
    last: int | None = None,
    branch: BranchNumber | None = OLD,
    states: dict[str, ReplicaState] = BOTH,
    failing: bool = False,
) -> int:
    return held.left_ms(
        Offer("0", branch, first, first if last is None else last), states, now_ms, failing=failing
    )


def test_held_only_while_a_peer_is_stable_and_not_for_long() -> None:
    held = hold()
    assert left_ms(held, 1_000) == LIVE_HOLD_MS
    assert left_ms(held, 1_000 + LIVE_HOLD_MS - 1) == 1
    assert left_ms(held, 1_000 + LIVE_HOLD_MS) == 0
    assert left_ms(held, 1_000 + LIVE_HOLD_MS, first=6) == LIVE_HOLD_MS


@pytest.mark.parametrize(
    "states",
    [{}, {"0": STABLE}, {"0": STABLE, "1": FAILING}, {"0": FAILING, "1": ReplicaState.FAILURE}],
)
def test_otherwise_shown_at_once(states: dict[str, ReplicaState]) -> None:
    held = hold()
    held.failure_ended({"0": OLD})
    assert left_ms(held, 1_000, states=states) == 0


def test_the_wait_begins_when_the_bucket_could_be_shown() -> None:
    held = hold()
    assert left_ms(held, 1_000, states={"1": FAILING}) == 0
    assert left_ms(held, 1_050) == LIVE_HOLD_MS - 50


@pytest.mark.parametrize("first", [1, 5])
def test_a_bucket_behind_another_does_not_begin_its_wait_anew(first: int) -> None:
    held = hold()
    assert left_ms(held, 1_000, first=first, last=first + 2) == LIVE_HOLD_MS
    assert left_ms(held, 1_150, first=first + 1, last=first + 3) == LIVE_HOLD_MS - 150
    assert left_ms(held, 1_160, first=first + 3) == LIVE_HOLD_MS - 10


def test_a_branch_whose_failure_is_over_is_held_for_what_later_waits_are_shorter() -> None:
    held = hold()
    held.failure_ended({"0": OLD, "1": None})
    assert left_ms(held, 1_000) == SAVED_MS
    assert left_ms(held, 1_000 + SAVED_MS) == 0


@pytest.mark.parametrize("branch", [NEW, (4, 0), None])
def test_a_new_branch_has_waited_already(branch: BranchNumber | None) -> None:
    held = hold()
    held.failure_ended({"0": OLD})
    assert left_ms(held, 1_000, branch=branch) == LIVE_HOLD_MS


def test_only_the_replica_whose_branch_ran_is_held_longer() -> None:
    held = hold()
    held.failure_ended({"0": None, "1": OLD})
    assert left_ms(held, 1_000) == LIVE_HOLD_MS


def test_within_a_failure_nothing_is_held_longer() -> None:
    held = hold()
    held.failure_ended({"0": OLD})
    assert left_ms(held, 1_000, failing=True) == LIVE_HOLD_MS


@pytest.mark.parametrize(
    ("policy", "saved_ms"),
    [(Policy.DELAY, SAVED_MS), (Policy.PROCESS, 0), (Policy.PROCESS, LIVE_HOLD_MS - 1)],
)
def test_where_later_waits_save_nothing_none_is_held_longer(policy: Policy, saved_ms: int) -> None:
    held = hold(policy, saved_ms)
    held.failure_ended({"0": OLD})
    assert left_ms(held, 1_000) == LIVE_HOLD_MS


def test_buckets_that_are_none_are_not_held() -> None:
    with pytest.raises(LocalProtocolError, match=r"5\.\.4 of 0"):
        left_ms(hold(), 1_000, first=5, last=4)
