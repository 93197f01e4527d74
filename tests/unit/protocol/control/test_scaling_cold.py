"""A shard under load in virtual time: a cold start is no reason to split it, an overload is one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from anabranch.protocol.control import scaling
from harness.load_bench import Cost
from harness.scaled_bench import ScaledBench

COLD: Mapping[int, float] = {1: 5_000, 2: 2_500, 3: 1_500}
"""Additional time of the first batches with rows, in ms."""
RUSH_MS = 60_000
CALM, RUSH = 55, 240
"""Rows per second, of which each takes 4 ms."""
ABOVE = 950
"""Share of the time, in permille, that batches may fill, as in the measured run."""


def shard(cold: Mapping[int, float], *, fixed_ms: int = 250) -> ScaledBench:
    def load(now_ms: int) -> float:
        return RUSH if now_ms >= RUSH_MS else CALM

    cost = Cost(fixed_ms=fixed_ms, row_ms=4, slow=dict(cold))
    return ScaledBench(load, cost, above_permille=ABOVE, for_ms=4_000)


@pytest.mark.parametrize("fixed_ms", [100, 250])
@pytest.mark.parametrize("waited_ms", [0, 6_000, 20_000, 60_000])
def test_a_cold_shard_that_will_keep_up_is_not_split(fixed_ms: int, waited_ms: int) -> None:
    """SG13, SG14: neither because of its first batches nor because of what has waited for it. One
    batch of it takes about as long as the window, and the lag falls only at its end.
    """
    bench = shard(COLD, fixed_ms=fixed_ms)
    bench.halt(waited_ms)
    bench.run(RUSH_MS)
    assert bench.splits == []


@pytest.mark.parametrize("waited_ms", [20_000, 60_000])
def test_nor_is_a_warm_one(waited_ms: int) -> None:
    """SG14: its node was away, and has a backlog."""
    bench = shard({})
    bench.halt(waited_ms)
    bench.run(RUSH_MS)
    assert bench.splits == []


def test_sg14_a_backlog_does_not_hide_an_overload() -> None:
    bench = ScaledBench(
        lambda _: RUSH, Cost(fixed_ms=100, row_ms=4.5), above_permille=ABOVE, for_ms=4_000
    )
    bench.halt(20_000)
    bench.run(40_000)
    assert bench.splits[0][0] <= 26_000


@pytest.mark.parametrize(
    ("rush", "over_ms", "at_ms"),
    [(RUSH, 0, 65_000), (2 * RUSH, 0, 63_000), (4 * RUSH, 0, 63_000), (RUSH, 30_000, 84_000)],
)
def test_steps_and_ramps_are_found_as_fast_as_by_the_lag(
    rush: float, over_ms: int, at_ms: int
) -> None:
    """The times are those of the rule that judged full batches by their lag alone."""

    def load(now_ms: int) -> float:
        part = min(1, (now_ms - RUSH_MS) / over_ms) if over_ms else 1
        return CALM if now_ms < RUSH_MS else CALM + (rush - CALM) * part

    bench = ScaledBench(load, Cost(fixed_ms=100, row_ms=4), above_permille=ABOVE, for_ms=4_000)
    bench.run(90_000)
    assert bench.splits[0][0] == at_ms


def test_it_would_be_split_if_first_batches_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    observe = scaling.Scaler._observe
    monkeypatch.setattr(
        scaling.Scaler,
        "_observe",
        lambda *given, is_cold: observe(*given, is_cold=False),
    )
    bench = ScaledBench(
        lambda _: 800,
        Cost(fixed_ms=100, row_ms=0.5, slow=dict(COLD)),
        above_permille=ABOVE,
        for_ms=4_000,
    )
    bench.run(RUSH_MS)
    assert bench.splits


def test_a_shard_that_cannot_keep_up_leaves_out_rows_and_is_split() -> None:
    bench = shard(COLD)
    bench.run(RUSH_MS)
    bench.first_sign.clear()  # of its cold start
    bench.run(RUSH_MS + 30_000)
    sheds_ms = min(at_ms for at_ms, kept in bench.kept if kept < 1_000)
    split_ms, halving = bench.splits[0]
    assert RUSH_MS < sheds_ms < RUSH_MS + 10_000
    assert RUSH_MS + 4_000 <= split_ms < RUSH_MS + 10_000
    assert "is overloaded for 4 s" in halving.because
    assert bench.late() == {}


def test_one_that_is_overloaded_from_its_start_is_split_once_it_is_warm() -> None:
    bench = ScaledBench(
        lambda _: RUSH,
        Cost(fixed_ms=250, row_ms=4, slow=dict(COLD)),
        above_permille=ABOVE,
        for_ms=4_000,
    )
    bench.run(40_000)
    assert bench.splits
