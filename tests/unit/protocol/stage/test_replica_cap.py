"""RE11: how much a query takes where there is a cap of rows a second."""

from __future__ import annotations

import pytest

from anabranch.protocol.log.timeline import timeline_name
from anabranch.protocol.stage.scheduling import BatchPacing, BatchRules
from harness.replica_bench import STATELESS, Bench, Settings, part

ZERO = timeline_name(7, 0)


@pytest.mark.parametrize(
    ("cap", "rows", "rest_ms"), [(0, 10**6, 400), (100, 30, 400), (100, 50, 500), (3, 2, 667)]
)
def test_a_batch_is_followed_by_the_rest_that_its_rows_ask_for(
    cap: int, rows: int, rest_ms: int
) -> None:
    rules = BatchRules(1_000, 5_000, pace_ms=400, rows_per_s=cap)
    pacing = BatchPacing(rules, STATELESS)
    assert pacing.next_at(5_000, rows, 7_000) == (7_000 + rest_ms, rest_ms > 400)
    assert rules.batch_rows_max() == (cap or 5_000)


def test_over_any_while_a_query_takes_no_more_than_the_cap() -> None:
    bench = Bench(settings=Settings(rows_per_s=10))
    bench.close(40, *range(1, 41))
    bench.look()
    taken = []
    while bench.at(ZERO) < 40:
        plan = bench.ask(ZERO).plan
        if plan is not None:
            taken.append((bench.now_ms, plan.rows))
        bench.wait(100)
    assert [rows for _, rows in taken] == [10, 10, 10, 10]
    assert [at_ms for at_ms, _ in taken] == [0, 1_000, 2_000, 3_000]


def test_a_bucket_that_has_more_than_a_second_may_have_comes_whole_and_is_paid_for() -> None:
    bench = Bench(settings=Settings(rows_per_s=10))
    bench.streams["a"].record(2, [part(1, rows=25), part(2)])
    bench.look()
    assert [plan.rows for plan in (bench.ask(ZERO).plan,) if plan] == [25]
    assert bench.replica.is_capped(bench.now_ms)
    bench.wait(2_400)
    assert bench.ask(ZERO).plan is None
    bench.wait(100)
    assert not bench.replica.is_capped(bench.now_ms)
    assert [plan.rows for plan in (bench.ask(ZERO).plan,) if plan] == [1]


def test_a_rest_that_the_pace_wants_is_not_the_caps() -> None:
    bench = Bench(settings=Settings(rows_per_s=10, pace_ms=300))
    bench.close(1, 1)
    bench.look()
    assert bench.ask(ZERO).plan is not None
    assert not bench.replica.is_capped(bench.now_ms)
    bench.wait(300)
    bench.streams["a"].record(2, [part(2, rows=4)])
    bench.look()
    assert bench.ask(ZERO).plan is not None
    assert bench.replica.is_capped(bench.now_ms)
