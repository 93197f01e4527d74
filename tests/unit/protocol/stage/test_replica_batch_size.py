"""RE12: what a query takes of a backlog where the plan compares rows with one another."""

from __future__ import annotations

from anabranch.protocol.log.timeline import timeline_name
from anabranch.protocol.stage.batch_size import BATCH_LONG_MS, COMPARED_ROWS_MIN
from anabranch.protocol.stage.planner import PlanTraits
from harness.replica_bench import Bench, Settings, part

ZERO = timeline_name(7, 0)
JOIN = PlanTraits(is_stateful=True, is_batch_safe=True, compares_rows=True)
BUCKETS = 400
ROWS = 100


def taken(bench: Bench, *durations_ms: int) -> list[int]:
    """Return the rows of the next batches, which take ``durations_ms``."""
    rows = []
    for took_ms in durations_ms:
        plan = bench.ask(ZERO).plan
        assert plan is not None
        rows.append(plan.rows)
        bench.wait(took_ms)
    return rows


def behind() -> Bench:
    bench = Bench(settings=Settings(traits=JOIN, rows_max=1_000_000))
    bench.streams["a"].record(BUCKETS, [part(n, rows=ROWS) for n in range(1, BUCKETS + 1)])
    bench.look()
    return bench


def test_a_backlog_is_taken_in_batches_that_grow_while_they_are_fast() -> None:
    least = COMPARED_ROWS_MIN
    assert taken(behind(), 700, 800, 900, 1_000) == [least, 2 * least, 4 * least, 8 * least]


def test_and_shrink_when_they_are_slow() -> None:
    least = COMPARED_ROWS_MIN
    slow = BATCH_LONG_MS + 1
    assert taken(behind(), 700, 3_000, 700, slow, 1) == [least, 2 * least, least, 2 * least, least]
