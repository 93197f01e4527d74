"""A replica under load, with batches that take time: forks for overload, shedding, corrections
(OV1-OV5), under loads of several shapes.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise
from math import sin
from statistics import mean

import pytest

from anabranch.protocol.errors import DataMissing, StageFunctionError
from anabranch.protocol.limits import HOP_MS
from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.stage.availability import Policy, waits_of
from anabranch.protocol.stage.correction_floor import OVERLOAD_WAIT_MS
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.load_control import KEPT_LEAST, shed_bound_ms, target_of
from anabranch.protocol.stage.planner import PlanTraits
from anabranch.protocol.stage.replica import BRANCH_RETRY_MS, INPUT_PARTS_MAX
from anabranch.protocol.stage.splitting import PROVEN_BUCKETS
from harness.load_bench import TICK_MS, WAITS, WIDTH_MS, Cost, Keys, Load, LoadBench
from harness.present import present
from harness.replica_bench import Bench, Settings, part

LONG = pytest.mark.no_cover
"""Mark of a test that runs a replica for long: traced it takes up to four times as long, and its
lines are those of others.
"""
SHEDS = {"width_ms": WIDTH_MS, "waits": WAITS, "rows_max": 100_000, "sheds": True}


def step(times: float, from_s: int = 20, until_s: int = 50, after: float = 0.3) -> Load:
    """Return a load of ``times`` the capacity (1 000 rows/s) for a while, and less before and
    after.
    """
    return lambda now_ms: (
        300 if now_ms < from_s * 1_000 else 1_000 * (times if now_ms < until_s * 1_000 else after)
    )


def run(load: Load, until_s: int, cost: Cost | None = None, **options: object) -> LoadBench:
    """Run a replica under ``load``."""
    bench = LoadBench(load, cost, Settings(**(SHEDS | options)))  # type: ignore[arg-type]
    bench.run(until_s * 1_000)
    return bench


@LONG
@pytest.mark.parametrize("rows_per_s", [0, 10, 300, 700])
def test_ov1_a_stage_that_keeps_up_never_forks(rows_per_s: int) -> None:
    bench = run(lambda _: rows_per_s, 120)
    assert bench.forks == []
    assert bench.late() == {}


@LONG
@pytest.mark.parametrize("slow", [{30: 5_000, 90: 3_000}, {1: 1_500, 2: 1_000, 3: 500}])
def test_ov1_nor_for_one_slow_batch_or_the_first_ones_of_a_process(slow: dict[int, float]) -> None:
    assert run(lambda _: 400, 120, Cost(slow=slow)).forks == []


@LONG
def test_ol10_an_overload_from_the_start_by_dear_rows_is_noticed_soon() -> None:
    """A row takes 10 ms, and rows come four times as fast as that."""
    bench = run(lambda now_ms: 400 if now_ms < 60_000 else 40, 150, Cost(20, 10))
    assert bench.forks[0] < 20_000, "it was 40 s, in batches of 1 000 rows"
    assert max(bench.late().values()) < 14_000
    assert len(bench.forks) == 1


def by_buckets(low: float, high: float, lull: float) -> Load:
    """Return a load of ``high`` rows per second for 30 s, and of ``lull`` from two minutes on."""
    return lambda now_ms: (
        low if now_ms < 20_000 else high if now_ms < 50_000 else low if now_ms < 120_000 else lull
    )


@pytest.mark.parametrize(
    ("bucket_ms", "low", "high", "gained"),
    [(100, 300, 2_000, 250), (200, 200, 1_500, 150), (300, 100, 1_200, 40)],
)
@LONG
def test_ov10_a_branch_that_cannot_save_what_its_buckets_cost_goes_before_the_correction(
    bucket_ms: float, low: float, high: float, gained: int
) -> None:
    """Two buckets end each second, and cost a fifth, two or three fifths of the core whatever is
    kept.
    """
    bench = run(by_buckets(low, high, low), 300, Cost(100, 1, bucket_ms=bucket_ms))
    assert len(bench.forks) == 1
    late = bench.late()
    assert len(late) <= 5, "up to 435 buckets were, by up to 52 s"
    assert max(late.values(), default=0) < 1_000
    assert max(bench.stable) > 41 + gained, "the correction goes on"


@LONG
def test_ov10_with_fewer_buckets_the_correction_comes_to_its_end() -> None:
    few = by_buckets(200, 1_500, 0)
    bench = run(
        lambda now_ms: 2_000 if now_ms > 120_000 and now_ms % 5_000 == 0 else few(now_ms),
        400,
        Cost(100, 1, bucket_ms=200),
    )
    assert len(bench.ends) == len(bench.forks) == 1
    assert max(bench.late().values(), default=0) <= 500
    assert max(bench.stable) >= max(bench.rows) - 5


def longest_wait_ms(bench: LoadBench) -> int:
    """Return the longest time between two buckets that the correction closed, or to the end."""
    closed = sorted(at_ms for at_ms in bench.stable.values() if at_ms >= bench.forks[0])
    times = [bench.forks[0], *closed, bench.now_ms]
    return max(later - before for before, later in pairwise(times))


@pytest.mark.parametrize("times", [1.5, 3.0])
@LONG
def test_ov11_the_correction_of_a_lasting_overload_has_its_floor(times: float) -> None:
    bench = run(step(times, until_s=1_000), 600)
    assert longest_wait_ms(bench) < OVERLOAD_WAIT_MS + 10_000, "it waited for ever"
    assert longest_wait_ms(bench) > OVERLOAD_WAIT_MS - 10_000
    assert max(bench.late().values(), default=0) <= 500
    settled = [kept for at_ms, kept in bench.kept if at_ms > 50_000]
    assert mean(settled) > 700 / times


SHAPES: dict[str, Load] = {
    "step": step(2),
    "ramp": lambda now_ms: min(2_000, now_ms / 50),
    "burst": lambda now_ms: 8_000 if 30_000 <= now_ms < 33_000 else 250,
    "sine": lambda now_ms: 250 if now_ms < 15_000 else 1_000 + 600 * sin(now_ms / 10_000),
}
COSTS = {
    "row": Cost(),
    "bucket": Cost(100, 0.1, bucket_ms=150),
    "both": Cost(300, 0.7, bucket_ms=80),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("cost", COSTS)
@LONG
def test_ov11_no_durations_of_batches_let_a_correction_wait_for_ever(shape: str, cost: str) -> None:
    """One batch in ten takes ten times as long, and for a while all take four times as long."""
    rng = random.Random(f"{shape}/{cost}")
    factors = [
        rng.choice((1, 1, 1, 1, 1, 1, 1, 1, 1, 10)) * (4 if number // 40 % 3 == 1 else 1)
        for number in range(1_000)
    ]
    bench = run(
        SHAPES[shape], 400, replace(COSTS[cost], noise=lambda number: factors[number % 1_000])
    )
    # Beside it one batch of the branch may be running, and it takes as long itself.
    assert longest_wait_ms(bench) < OVERLOAD_WAIT_MS + 120_000


def rush(now_ms: int) -> float:
    """Return a load that is twice the capacity of COSTLY for 15 s, and a quarter otherwise."""
    return 440 if 20_000 <= now_ms < 35_000 else 60


COSTLY = (200, 4)
"""Fixed part of a batch and cost of a row, in ms."""


def correcting(bench: LoadBench, bucket: int) -> bool:
    """Return whether ``bucket`` came while the stage corrected."""
    return 36_000 < bucket * WIDTH_MS < bench.ends[-1]


@LONG
@pytest.mark.parametrize("pace_ms", [0, 400])
def test_ov7_with_one_task_the_branch_and_its_correction_take_turns(pace_ms: int) -> None:
    bench = run(rush, 200, Cost(*COSTLY), has_one_task=True, pace_ms=pace_ms)
    ages = [
        at_ms - bucket * WIDTH_MS
        for bucket, at_ms in bench.shown.items()
        if correcting(bench, bucket)
    ]
    assert max(ages) < 2_800
    assert mean(ages) < 1_700
    assert min(kept for at_ms, kept in bench.kept if at_ms > 45_000) > 900
    assert bench.ends[-1] < 150_000
    assert bench.late() == {}


def test_ov7_the_correction_keeps_its_share_while_the_branch_has_its_turn() -> None:
    """The stage is busy half of the time without a rush."""
    bench = run(lambda now_ms: max(100, rush(now_ms)), 400, Cost(*COSTLY), has_one_task=True)
    assert len(bench.ends) == len(bench.forks) == 1
    assert bench.late() == {}
    shares = [kept for at_ms, kept in bench.kept if 50_000 < at_ms < bench.ends[0] - 20_000]
    assert 350 < mean(shares) < 650


@pytest.mark.parametrize("has_one_task", [False, True])
def test_ol12_a_correction_comes_nearer_where_every_batch_costs_much(*, has_one_task: bool) -> None:
    """The stage is busy for less than half of the time with its rows, and as long with its
    batches.
    """

    def load(now_ms: int) -> float:
        return 440 if 60_000 <= now_ms < 70_000 else 110

    bench = run(load, 260, Cost(300, 4), has_one_task=has_one_task)
    assert len(bench.ends) == len(bench.forks) == 1
    assert bench.late() == {}


@LONG
def test_ov7_a_hole_in_the_correction_stops_nobody() -> None:
    bench = run(rush, 60, Cost(*COSTLY), has_one_task=True)
    bench.is_silent = True
    bench.run(80_000)
    bench.is_silent = False
    bench.run(260_000)
    assert len(bench.ends) == len(bench.forks)
    assert max(bench.stable) >= max(bench.rows) - 3


def test_ov7_a_branch_that_is_late_waits_for_no_turn() -> None:
    """Its batches take longer than the bound, and so do those of the correction."""
    bench = run(rush, 60, Cost(*COSTLY), has_one_task=True)
    bench.cost = Cost(3_500, 4)
    tentative, stable = len(bench.kept), max(bench.stable)
    bench.run(120_000)
    assert len(bench.kept) > tentative + 5
    assert max(bench.stable) > stable


@LONG
@pytest.mark.parametrize("rush_ms", [31_500, 33_000])
def test_ov3_a_rush_during_the_correction_of_a_missing_input_is_shown_in_time(rush_ms: int) -> None:
    """The branch keeps all rows when the rush comes: it must not wait long for the correction."""

    def load(now_ms: int) -> float:
        usual = 60 if now_ms % (3 * WIDTH_MS) else 120
        return 900 if rush_ms <= now_ms < rush_ms + 8_000 else usual

    bench = run(load, 15, Cost(100, 4), has_one_task=True)
    bench.is_silent = True
    bench.run(30_000)
    bench.is_silent = False
    bench.run(55_000)
    assert bench.late() == {}


TAKEN = range(45, 75)
"""Numbers of the batches during which other programs have the cores."""


def test_ol9_a_stage_forks_not_where_batches_take_as_long_whatever_they_hold() -> None:
    bench = run(lambda _: 60, 200, Cost(200, 4, dict.fromkeys(TAKEN, 4_000)))
    assert bench.forks == []
    assert len(bench.late()) > 100, "the cores were taken"


@LONG
def test_ol9_shedding_that_does_not_help_ends() -> None:
    """Few rows wait, and the durations of batches have nothing to do with them."""
    kept = []
    for seed in range(3):
        rng = random.Random(seed)
        slow = {number: rng.uniform(1_500, 7_000) for number in TAKEN}
        bench = run(lambda _: 10, 220, Cost(200, 4, slow))
        kept.append(mean(share for _, share in bench.kept or [(0, KEPT_ALL)]))
        assert len(bench.forks) == len(bench.ends)
        assert max(bench.stable) >= max(bench.rows) - 3
    assert mean(kept) > 300


@pytest.mark.parametrize(("max_delay_ms", "has_ended"), [(3_000, False), (4_200, True)])
@LONG
def test_a_bound_that_leaves_batches_less_than_check_asks_for_ends_no_overload(
    max_delay_ms: int, *, has_ended: bool
) -> None:
    """The first of two stages: batches take up to 0.3 s more than their rows need, at random."""
    rng = random.Random(0)
    noise = {number: rng.uniform(0, 300) for number in range(2_000)}
    bench = run(
        lambda now_ms: 250 if 30_000 <= now_ms < 40_000 else 60,
        200,
        Cost(200, 4, noise),
        waits=waits_of(max_delay_ms, 500, 0, 2),
    )
    assert (max_delay_ms >= shed_bound_ms(0, 2)) == has_ended
    assert len(bench.forks) == 1
    assert len(bench.ends) == has_ended
    least = min(kept for at_ms, kept in bench.kept if at_ms > 60_000)
    assert (least > 100) == has_ended, "the share went down to one per cent"


@LONG
def test_an_overload_is_shed_in_time_and_corrected_in_the_end() -> None:
    bench = run(step(2, until_s=40), 240)
    assert len(bench.forks) == len(bench.ends) == 1
    assert 20_000 < bench.forks[0] < 25_000
    assert bench.late() == {}
    during = [kept for at_ms, kept in bench.kept if 25_000 < at_ms < 40_000]
    assert min(during) > 300
    assert max(during) < 550
    last = max(bench.rows) - 2
    assert set(range(1, last)) <= bench.stable.keys()


def test_ov1_without_the_switch_nothing_is_shed_and_results_are_late() -> None:
    bench = run(step(2), 60, sheds=False)
    assert bench.forks == []
    assert len(bench.late()) > 20


def test_ov1_a_stage_that_may_not_go_on_without_input_sheds_nothing() -> None:
    assert run(step(2), 60, policy=Policy.SUSPEND).forks == []


def test_a_stage_that_sheds_nothing_has_no_part_in_the_choice_of_its_node() -> None:
    bench = run(lambda _: 300, 3, sheds=False)
    replica = bench.bench.replica
    replica.limit(KEPT_LEAST)
    bench.run(6_000)
    assert replica.demand(bench.now_ms) is None
    assert bench.forks == []


def test_ov6_a_branch_does_not_end_before_its_limit() -> None:
    """A batch of the correction brings it to the present; before it ends other stages of the node
    need the cores again.
    """
    bench = run(lambda _: 300, 3)
    replica = bench.bench.replica
    replica.limit(KEPT_LEAST)
    bench.run(8_000)
    assert len(bench.forks) == 1
    bench.is_silent = True
    replica.limit(None)
    while max(bench.stable) < 8_000 // WIDTH_MS:
        begun = bench.bench.ran[-1][1]
        if begun.kind is BoundaryKind.STABLE and begun.after.bucket == 8_000 // WIDTH_MS:
            replica.limit(KEPT_LEAST)
        bench.tick()
    assert bench.ends == []
    bench.is_silent = False
    replica.limit(None)
    bench.run(12_000)
    assert len(bench.ends) == 1


@LONG
def test_ov3_while_it_is_overloaded_the_successor_waits() -> None:
    bench = run(step(2), 49)
    hole = max(bench.stable)
    assert bench.now_ms // WIDTH_MS - hole > 40
    bench.run(50_000)
    assert max(bench.stable) == hole
    bench.run(90_000)
    assert max(bench.stable) > hole


@LONG
def test_ov3_an_overload_during_a_correction_suspends_the_successor_again() -> None:
    first, again = step(2, until_s=30), step(2, 45, 60)
    bench = run(lambda now_ms: max(first(now_ms), again(now_ms)), 55)
    assert len(bench.forks) == 1
    hole = max(bench.stable)
    assert hole > bench.forks[0] // WIDTH_MS
    bench.run(59_000)
    assert max(bench.stable) == hole
    bench.run(300_000)
    assert len(bench.ends) == 1
    assert bench.late() == {}


@LONG
def test_ov9_a_shard_that_its_halves_wait_for_corrects_although_it_is_overloaded() -> None:
    """They are proven by its stable results alone, and only they can end a lasting overload."""
    bench = run(step(2, until_s=1_000), 60)
    replica, hole = bench.bench.replica, max(bench.stable)
    assert bench.now_ms // WIDTH_MS - hole > 60
    replica.is_awaited = True
    bench.run(90_000)
    reached = max(bench.stable)
    assert reached > hole + 2 * PROVEN_BUCKETS
    assert min(kept for at_ms, kept in bench.kept if at_ms > 60_000) > KEPT_LEAST
    assert bench.late() == {}
    replica.is_awaited = False
    bench.run(92_000)
    reached = max(bench.stable)
    bench.run(120_000)
    assert max(bench.stable) == reached
    assert bench.late() == {}


@LONG
def test_ov3_a_correction_that_comes_no_nearer_gets_more_of_the_cores() -> None:
    """Rows become twice as expensive while the correction runs."""
    bench = run(step(2, until_s=40, after=0.4), 60)
    assert bench.kept[-1][1] > 400
    bench.cost.row_ms = 2.0
    bench.run(120_000)
    assert min(kept for at_ms, kept in bench.kept if at_ms > 60_000) < 150
    bench.cost.row_ms = 1.0
    bench.run(400_000)
    assert len(bench.ends) == 1


@LONG
@pytest.mark.parametrize("times", [1.2, 1.5, 3.0, 6.0])
def test_ol3_a_permanent_overload_is_shed_by_a_steady_share(times: float) -> None:
    bench = run(step(times, until_s=1_000), 90)
    assert bench.late() == {}
    settled = [kept for at_ms, kept in bench.kept if at_ms > 50_000]
    assert max(settled) - min(settled) <= 150
    assert sum(settled) / len(settled) == pytest.approx(900 / times, rel=0.25)


@LONG
def test_a_ramp_is_shed_more_and_more() -> None:
    bench = run(lambda now_ms: now_ms / 50, 120)
    assert bench.late() == {}
    assert len(bench.forks) == 1
    means = [
        sum(kept for at_ms, kept in bench.kept if at_ms // 10_000 == ten)
        / sum(at_ms // 10_000 == ten for at_ms, _ in bench.kept)
        for ten in range(7, 12)
    ]
    assert means == sorted(means, reverse=True)


@LONG
def test_a_burst_onto_small_batches_is_late_by_little_and_is_corrected() -> None:
    bench = run(lambda now_ms: 10_000 if 30_000 <= now_ms < 33_000 else 300, 200)
    assert max(bench.late().values(), default=0) < WAITS.first_ms
    assert len(bench.late()) < 10
    assert len(bench.forks) == len(bench.ends) == 1


def test_a_load_that_swings_makes_no_swings_between_full_and_little() -> None:
    """A sine around the capacity: the share follows it, and no batch undoes the one before."""
    bench = run(lambda now_ms: 300 if now_ms < 15_000 else 1_300 + 600 * sin(now_ms / 10_000), 140)
    assert bench.late() == {}
    assert len(bench.forks) == 1
    shares = [kept for at_ms, kept in bench.kept if at_ms > 30_000]
    turns = [
        (before, at, after)
        for before, at, after in zip(shares, shares[1:], shares[2:], strict=False)
        if (at - before) * (after - at) < 0 and min(abs(at - before), abs(after - at)) > 100
    ]
    assert turns == []


def test_only_tentative_plans_leave_out_rows_and_the_plan_says_it() -> None:
    bench = run(step(2), 60)
    kinds = {plan.kind for _, plan in bench.bench.ran if plan.kept < KEPT_ALL}
    assert kinds == {BoundaryKind.TENTATIVE}
    assert all(KEPT_LEAST <= kept <= KEPT_ALL for _, kept in bench.kept)


def of_keys(*places: int, hot: int = 0) -> Keys:
    """Return the rows of keys at these per mille of the hash; ``hot`` times as many more of the
    last one.
    """
    shares = [(at, 1) for at in places] + [(places[-1], hot)]
    whole = sum(weight for _, weight in shares)
    return lambda rows, keys: rows * sum(weight for at, weight in shares if at < keys) // whole


FEW = (72, 145, 151, 224, 249, 274, 279, 387, 585, 599, 650, 700, 760, 800, 850, 900, 930, 990)


@pytest.mark.parametrize(
    ("times", "keys", "late_ms"),
    [
        (2, of_keys(72, 145, 151, 224, 249, 300, hot=6), 500),
        (30, of_keys(*FEW), 3_000),
        (4, of_keys(*FEW, 400, hot=18), 500),
    ],
)
@LONG
def test_kk4_few_keys_or_a_hot_one_are_in_time_and_show_something(
    times: float, keys: Keys, late_ms: int
) -> None:
    """With the share of the keys for that of the rows, batches keep nothing, or three times what
    fits.
    """
    bench = LoadBench(step(times, until_s=80), None, Settings(**SHEDS))  # type: ignore[arg-type]
    bench.keys = keys
    bench.run(80_000)
    settled = [(at_ms, rows, kept) for at_ms, rows, kept in bench.processed if at_ms > 40_000]
    some = [at_ms for at_ms, _, kept in settled if kept]
    assert max(after - before for before, after in pairwise(some)) < 6_000
    late = [ms for bucket, ms in bench.late().items() if bucket * WIDTH_MS > 40_000]
    assert max(late, default=0) <= late_ms
    share = sum(kept for *_, kept in settled) / sum(rows for _, rows, _ in settled)
    assert share > 0.65 / times


def test_lw4_a_replica_keeps_keys_by_the_rows_that_they_have() -> None:
    """The first key alone has all rows."""
    bench = LoadBench(step(3), None, Settings(**SHEDS))  # type: ignore[arg-type]
    bench.keys = of_keys(72)
    bench.run(40_000)
    assert {kept for _, rows, kept in bench.processed if rows} > {0}
    assert min(kept for _, kept in bench.kept if kept) <= 72
    keeping_all = LoadBench(step(3), None, Settings(**(SHEDS | {"sheds": False})))  # type: ignore[arg-type]
    keeping_all.bench.replica.processed(keeping_all.bench.replica.stable_query, 1)
    assert keeping_all.bench.replica.load is None


@LONG
def test_ol11_a_restart_with_a_backlog_of_dear_rows_shows_the_present_soon() -> None:
    """Batches of 1 000 rows of 10 ms took a minute before anything was known."""
    cold = {1: 6_000.0, 2: 3_000.0, 3: 1_500.0}
    bench = LoadBench(lambda _: 130, Cost(fixed_ms=20, row_ms=10, slow=cold))
    bench.halt(15_000)
    bench.run(120_000)
    (forked_ms,) = bench.forks
    assert forked_ms < 15_000 + sum(cold.values()) + 12_000
    assert max(bench.late().values()) < 20_000
    assert max(bench.late()) * WIDTH_MS < forked_ms


def test_ov1_a_replica_that_catches_up_leaves_new_results_to_its_peer() -> None:
    """Behind from the beginning: forks alone, and not while a peer serves."""
    for peer_serves in (False, True):
        bench = LoadBench(lambda _: 300, None, Settings(**SHEDS))  # type: ignore[arg-type]
        bench.bench.peer_serves = peer_serves
        bench.halt(60_000)
        bench.run(100_000)
        assert bool(bench.forks) != peer_serves


@LONG
def test_ov8_a_half_that_nobody_reads_yet_catches_up_instead() -> None:
    """Its shard is overloaded. Results of its branch nobody would see."""

    def begun(*, is_read: bool) -> LoadBench:
        bench = LoadBench(lambda _: 700, None, Settings(**SHEDS))  # type: ignore[arg-type]
        bench.bench.replica.is_read = is_read
        bench.halt(60_000)
        bench.run(100_000)
        assert bool(bench.forks) == is_read
        assert (bench.bench.replica.demand(bench.now_ms) is not None) == is_read
        return bench

    shard, half = begun(is_read=True), begun(is_read=False)
    assert max(half.stable) > max(shard.stable)
    half.bench.replica.is_read = True
    half.run(130_000)
    assert half.forks, "its split was confirmed while it was late"


@LONG
def test_ov8_nor_does_it_leave_the_cores_to_a_branch_for_a_missing_input() -> None:
    bench = LoadBench(step(2, from_s=10, until_s=1_000), None, Settings(**SHEDS))  # type: ignore[arg-type]
    bench.bench.replica.is_read = False
    bench.run(12_000)
    bench.is_silent = True
    bench.run(20_000)
    assert bench.forks
    bench.is_silent = False
    bench.run(40_000)
    reached = max(bench.stable)
    bench.run(60_000)
    assert max(bench.stable) > reached + 10
    assert min(kept for _, kept in bench.kept) > KEPT_LEAST


@LONG
def test_ov4_the_branch_stays_until_the_successor_is_at_the_present() -> None:
    bench = run(step(2, until_s=40), 240)
    ended = bench.ends[0]
    bucket = max(each for each, at_ms in bench.stable.items() if at_ms <= ended)
    assert ended // WIDTH_MS - bucket <= 6


@LONG
def test_ov4_the_branch_stays_while_the_rows_that_wait_would_be_late() -> None:
    """Many rows come in one bucket, while a batch brings the correction to the present."""
    usual, burst = step(2, until_s=30, after=0.2), range(0)
    bench = run(lambda now_ms: usual(now_ms) + (8_000 if now_ms in burst else 0), 40)
    while not burst:
        bench.tick()
        plans = [plan for _, plan in bench.bench.ran if plan.kind is BoundaryKind.STABLE]
        if plans[-1].after.bucket >= bench.now_ms // WIDTH_MS - 1:
            burst = range(bench.now_ms + 1, bench.now_ms + WIDTH_MS + 1)
    bench.run(burst.stop)
    before = max(bench.stable)
    bench.run(bench.now_ms + 3_000)
    assert max(bench.stable) > before
    assert bench.ends == []
    bench.run(200_000)
    assert len(bench.ends) == 1
    assert bench.late() == {}


def test_ov5_a_branch_that_fails_is_not_tried_before_the_stable_query_has_passed_it() -> None:
    bench = run(step(2, until_s=30), 26)
    branch = bench.bench.branch
    end = bench.bench.at(branch)
    bench.fail(StageFunctionError("only on part of the rows"))
    bench.run(200_000)
    assert bench.forks[1:] == [] or bench.position_at(bench.forks[1]) >= end


@pytest.mark.parametrize("failed_s", [26, 30, 35])
@pytest.mark.parametrize("times", [2, 4])
def test_ov5_no_batch_of_the_stable_query_delays_the_next_try_of_a_branch(
    times: float, failed_s: int
) -> None:
    """A fork waits for the end of a batch, and all that an overload has left waits for one."""
    bench = run(step(times, until_s=60), failed_s)
    bench.fail(DataMissing("blocks that may come back"))
    failed_ms = bench.now_ms
    bench.run(failed_ms + 10_000)
    target_ms = target_of(WAITS.first_ms, WAITS.next_ms)
    (again_ms,) = [at_ms for at_ms in bench.forks if at_ms > failed_ms]
    assert again_ms - failed_ms <= BRANCH_RETRY_MS + target_ms + TICK_MS, "it was up to 5.2 s"
    assert max(bench.late().values(), default=0) <= 2_000, "they were up to 4.4 s"


@LONG
def test_a_missing_input_of_an_overloaded_stage_is_gone_on_without() -> None:
    """The input stops while the branch sheds, and comes back: one end, everything stable."""
    bench = run(step(2, until_s=40), 30)
    bench.is_silent = True
    bench.run(45_000)
    bench.is_silent = False
    bench.run(400_000)
    assert len(bench.ends) >= 1
    assert bench.bench.replica.branch is None
    assert set(range(1, max(bench.rows) - 2)) <= bench.stable.keys()


def test_the_first_batch_without_an_input_is_no_larger_than_can_be_predicted() -> None:
    """Rows cost 25 ms. A part of the input stops when five times as many rows come: the measured
    batches have few of them.
    """
    bench = run(lambda now_ms: 12 if now_ms <= 10_000 else 60, 10, Cost(fixed_ms=0.0, row_ms=25.0))
    bench.held_at = 10_000 // WIDTH_MS
    bench.run(18_000)
    assert bench.forks
    target_ms = target_of(WAITS.first_ms, WAITS.next_ms)
    assert bench.late(HOP_MS + target_ms + TICK_MS) == {}


@LONG
@pytest.mark.parametrize("cost", [(0, 25), (100, 10), (300, 1)])
def test_after_batches_of_one_size_new_results_are_in_time_beside_a_correction(
    cost: tuple[int, int],
) -> None:
    """Nothing tells what a row costs until an input is back that was missing for ten seconds."""
    rows_per_s = 0.4 * (1_000 - cost[0]) / cost[1]
    bench = run(lambda _: rows_per_s, 10, Cost(*cost))
    bench.is_silent = True
    bench.run(20_000)
    bench.is_silent = False
    bench.run(60_000)
    assert bench.forks
    assert max(bench.late().values(), default=0) < 2_000


@LONG
@pytest.mark.parametrize("has_one_task", [False, True])
@pytest.mark.parametrize(("rush_ms", "back_ms"), [(6_500, 8_000), (7_000, 8_500)])
def test_ov10_a_branch_that_has_not_measured_its_rows_goes_before_the_correction(
    rush_ms: int, back_ms: int, *, has_one_task: bool
) -> None:
    """An input is missing from the first seconds of a process on. When it is back, all measured
    batches have one size, and a rush has begun.
    """

    def load(now_ms: int) -> float:
        if now_ms > rush_ms + 10_000:
            return 0
        return 8 if now_ms <= 4_500 else 20 if now_ms <= rush_ms else 100

    bench = run(load, 2, Cost(0.0, 25.0), has_one_task=has_one_task, pace_ms=1_000)
    bench.held_at = 2_000 // WIDTH_MS
    bench.run(back_ms)
    bench.held_at = None
    bench.run(100_000)
    assert bench.late() == {}, "up to 16 buckets were, by up to 5.9 s"
    assert len(bench.ends) == len(bench.forks) == 1


UNSAFE = PlanTraits(is_stateful=True, is_batch_safe=False)


@LONG
@pytest.mark.parametrize("times", [1.2, 2.0])
def test_ov1_an_overload_from_the_start_of_equal_batches_is_shed(times: float) -> None:
    """Each bucket has a batch of its own: no other size tells what a row costs."""
    bench = run(lambda _: 800 * times, 60, traits=UNSAFE)
    assert len(bench.forks) == 1
    assert bench.late() == {}


def test_ov1_nor_where_each_bucket_has_a_batch_of_its_own() -> None:
    """The fixed parts of such batches take most of the time, and leave no rows waiting."""
    bench = run(lambda _: 500, 60, Cost(slow={30: 1_500}), traits=UNSAFE)
    assert bench.forks == []
    assert bench.late() == {}


@LONG
def test_a_correction_after_an_overload_that_comes_to_a_hole_waits_there() -> None:
    bench = run(step(2, until_s=25), 30)
    bench.is_silent = True
    bench.run(150_000)
    hole = 30_000 // WIDTH_MS
    assert max(bench.stable) in {hole - 1, hole}
    assert bench.bench.replica.branch is not None
    bench.is_silent = False
    bench.run(400_000)
    assert bench.bench.replica.branch is None


@LONG
def test_a_stage_that_stands_at_a_hole_has_nothing_to_correct() -> None:
    """A part of its input is missing, and its node had to limit stages meanwhile. Another one may
    correct before that part is back.
    """
    bench = run(step(2, until_s=25), 30)
    replica = bench.bench.replica
    bench.held_at = 30_000 // WIDTH_MS
    bench.run(150_000)
    replica.limit(KEPT_ALL)
    bench.run(160_000)
    replica.limit(None)
    bench.run(170_000)
    demand = present(replica.demand(bench.now_ms))
    assert replica.branch is not None
    assert (demand.is_late, demand.backlog) == (False, 0)
    bench.held_at = None
    bench.run(171_000)
    demand = present(replica.demand(bench.now_ms))
    assert demand.backlog > 1, "it takes its turn"


def test_the_node_learns_what_stages_before_left_out() -> None:
    bench = run(lambda _: 300, 20)
    replica = bench.bench.replica
    assert (demand := replica.demand(bench.now_ms)) is not None
    assert demand.inputs_shed == 0
    bench.is_silent = True
    bench.run(22_000)
    waiting = range(max(bench.stable) + 1, bench.now_ms // WIDTH_MS + 1)
    rows = [part(bucket, 100) for bucket in waiting]
    bench.bench.streams["a"].tentative(waiting[-1], rows, shed=400)
    bench.run(25_000)
    assert replica.branch is not None
    assert (demand := replica.demand(bench.now_ms)) is not None
    assert (demand.inputs_shed, demand.is_late) == (400, False)


def test_a_stage_that_begins_late_counts_no_rows_that_it_never_reads() -> None:
    """Its inputs describe their oldest buckets no more: it reads them from a log snapshot on."""
    bench = Bench("a", Settings(after=20, **SHEDS))  # type: ignore[arg-type]
    log_state = bench.streams["a"].log_state
    bench.streams["a"].record(30, [part(bucket, 10) for bucket in range(1, 31)])
    log_state.forget(15)
    bench.look()
    query = bench.stable_query
    for _ in range(2):
        bench.run(query, bench.decide(query).plan)
    assert bench.positions[query].bucket == 30
    assert sum(plan.rows for _, plan in bench.ran) == 100


def test_ov1_a_process_that_was_paused_looks_before_it_judges() -> None:
    bench = run(step(6, from_s=5, until_s=100, after=0.3), 6)
    assert bench.forks == []
    stable = bench.bench.stable_query
    bench.bench.pause(30_000)
    assert not bench.bench.decide(stable).fork


def test_the_figures_say_how_long_there_is_room_while_the_backlog_grows() -> None:
    bench = run(step(2, from_s=10, until_s=1_000), 30)
    replica = bench.bench.replica
    figures = present(replica.load_figures(30_000, INPUT_PARTS_MAX // 2))
    assert figures.use is not None
    assert figures.use > 1_000
    figures = present(replica.load_figures(45_000, INPUT_PARTS_MAX // 2 + 1_000))
    assert figures.room_left_ms == (INPUT_PARTS_MAX // 2 - 1_000) * 15
    assert figures.backlog > 10_000
    assert figures.kept < 600
    assert run(lambda _: 300, 20).bench.replica.load_figures(20_000, 5) is None


@pytest.mark.parametrize(("shed", "left_ms"), [(400, 200), (0, 700)])
def test_av11_a_reader_of_an_overloaded_stage_waits_as_long_as_that_one_and_a_little(
    shed: int, left_ms: int
) -> None:
    """The record from which its own timer starts came late, by a batch of the stage before."""
    first_ms = Settings().waits.first_ms
    bench = Bench(settings=Settings(before_ms=first_ms - 200))
    bench.close(1, 1)
    bench.wait(first_ms - 600)
    bench.ask(bench.stable_query)
    bench.streams["a"].tentative(4, [part(2)], () if shed else ("x",), fork=True, shed=shed)
    waited_ms = 0
    while not bench.ask(bench.stable_query).fork:
        bench.wait(100)
        waited_ms += 100
    assert waited_ms == left_ms
    assert bench.ran[-1][1].kind is BoundaryKind.TENTATIVE
