"""Which stages run follows from the last step of each shard; a withdrawn split rests."""

from __future__ import annotations

import pytest

from anabranch.protocol.control.halving import SPLIT_AGAIN_MS, Room, Shards
from anabranch.protocol.control.records import SplitStep, Step

HALVES = {"s": ("s.0", "s.1"), "s.0": ("s.00", "s.01"), "t": ("t.0", "t.1")}


def shards(*steps: SplitStep, now_ms: int = 1_000) -> Shards:
    found = Shards(HALVES)
    for step in steps:
        found.apply(step, now_ms)
    return found


def step(kind: Step, shard: str = "s", attempt: int = 0, *, bucket: int = -1) -> SplitStep:
    reason = "" if kind is Step.WANTED else "too slow"
    return SplitStep(shard, kind, 0, attempt, reason, bucket)


@pytest.mark.parametrize(
    ("last", "runs"),
    [(None, False), (Step.WANTED, True), (Step.CONFIRMED, True), (Step.WITHDRAWN, False)],
)
def test_hg1_a_half_runs_from_the_split_on(last: Step | None, *, runs: bool) -> None:
    found = shards(*([] if last is None else [step(last)]))
    assert [found.runs(stage) for stage in ("s.0", "s.1")] == [runs, runs]
    assert [found.runs(stage) for stage in ("s", "t", "other")] == [True] * 3
    assert not found.runs("s.00")
    assert found.is_split("s") == (last is Step.CONFIRMED)
    assert found.is_compared("s") == found.is_compared("s.1") == (last is Step.WANTED)
    assert not found.is_compared("s.00")


def test_hg2_one_split_is_under_way() -> None:
    found = shards(step(Step.WANTED))
    assert found.hindrance("t", 1_000) == "the split of s is under way"
    assert not shards(step(Step.CONFIRMED)).hindrance("t", 1_000)
    assert not shards(step(Step.CONFIRMED)).hindrance("s.0", 1_000)


def test_a_shard_without_halves_is_not_split() -> None:
    found = shards()
    assert found.hindrance("s.1", 0).endswith("raise `halvings` of its stage")
    assert (found.halves("s"), found.halves("s.1")) == (("s.0", "s.1"), ())


def test_hg3_a_withdrawn_split_rests_longer_each_time() -> None:
    found = shards(step(Step.WITHDRAWN), now_ms=1_000)
    assert "too slow. It is tried again in 10 min" in found.hindrance("s", 1_001)
    assert "tried again in 1 min" in found.hindrance("s", 1_000 + SPLIT_AGAIN_MS - 1)
    assert not found.hindrance("s", 1_000 + SPLIT_AGAIN_MS)
    for _ in range(8):
        found.apply(step(Step.WITHDRAWN, attempt=4), 0)
    assert found.hindrance("s", 64 * SPLIT_AGAIN_MS - 1)
    assert not found.hindrance("s", 64 * SPLIT_AGAIN_MS)
    assert found.wanted("s", "hot", 7) == SplitStep("s", Step.WANTED, 7, 4, "hot")


def test_hg3_one_that_differs_is_not_tried_again() -> None:
    found = shards(step(Step.WITHDRAWN, bucket=3))
    assert "Mend that" in found.hindrance("s", 10**12)


def test_the_first_attempt_names_none() -> None:
    assert shards().wanted("s", "hot", 7).attempt == -1


def test_a_half_goes_where_least_load_is_left() -> None:
    room = Room({"a": 1, "b": 1, "c": 2})
    room.add("a", 900)
    room.will_leave("a", 900)
    room.add("c", 300)
    assert room.take(["a", "b", "c"], 450) == "c"
    assert room.then("c") == 375
    assert room.take(["a", "b"], 450) == "b", "of equal ones that which has less until then"
    assert room.take(["a", "b", "c"], 450) == "a"
    assert room.then("a") == 450
