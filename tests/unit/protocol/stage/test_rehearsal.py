"""When a moved replica rehearses, how long the cutover waits for it, and what it runs (RH1-RH4)."""

from __future__ import annotations

from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.stage.planner import PlanTraits, QueryPosition
from anabranch.protocol.stage.rehearsal import (
    REHEARSAL_MS_MAX,
    REHEARSED_BATCHES,
    Rehearsal,
    RehearsedBatches,
)
from harness.boundary_logs import part, record, started, state_after
from harness.present import present

STATEFUL = PlanTraits(is_stateful=True, is_batch_safe=True)


def log_state() -> LogState:
    """Buckets 1 to 12, each closed by a batch of its own, with a row in every second one."""
    records = [
        record(0, bucket - 1, bucket, (part(bucket),) if bucket % 2 else ())
        for bucket in range(1, 13)
    ]
    return state_after(started(), *records)


def run(batches: RehearsedBatches, position: QueryPosition) -> list[tuple[int, int]]:
    """Return (last bucket, rows) of each batch from ``position`` on."""
    found = []
    while (plan := batches.plan(position)) is not None:
        assert batches.plan(position) == plan, "asked again"
        assert plan.before == position
        assert not batches.is_finished
        batches.made((), plan.after.bucket)
        found.append((plan.after.bucket, plan.rows))
        position = plan.after
    assert batches.is_finished
    return found


def test_rh1_it_begins_once_and_from_a_near_checkpoint() -> None:
    rehearsal = Rehearsal(is_wanted=True)
    found = []
    for now_ms, is_near in enumerate((False, True, True)):
        found.append((rehearsal.begins(now_ms, is_near=is_near), rehearsal.is_running))
    assert found == [(False, False), (True, True), (False, True)]
    for _ in range(2):
        rehearsal.ended()
    assert not rehearsal.begins(3, is_near=True)
    assert not rehearsal.is_running


def test_rh1_where_none_is_wanted_nothing_waits_for_it() -> None:
    rehearsal = Rehearsal(is_wanted=False)
    assert not rehearsal.delays(0)
    assert not rehearsal.begins(0, is_near=True)
    assert not rehearsal.is_running


def test_rh4_the_cutover_waits_until_it_has_ended_but_not_for_ever() -> None:
    for ends in (True, False):
        rehearsal = Rehearsal(is_wanted=True)
        assert rehearsal.delays(10 * REHEARSAL_MS_MAX), "it has not begun"
        assert rehearsal.begins(1_000, is_near=True)
        assert rehearsal.delays(1_000 + REHEARSAL_MS_MAX - 1)
        if ends:
            rehearsal.ended()
            assert not rehearsal.delays(1_001)
        assert not rehearsal.delays(1_000 + REHEARSAL_MS_MAX)


def test_rh3_it_takes_a_bucket_with_rows_at_a_time() -> None:
    batches = RehearsedBatches({"a": log_state()}, STATEFUL, 12)
    found = run(batches, QueryPosition(7, 4))
    assert len(found) == REHEARSED_BATCHES
    assert all(rows == 1 for _, rows in found)
    assert found == sorted(found)


def test_rh2_it_takes_nothing_that_the_replica_has_not_closed() -> None:
    batches = RehearsedBatches({"a": log_state()}, STATEFUL, 5)
    assert run(batches, QueryPosition(7, 4)) == [(5, 1), (5, 0), (5, 0)]


def test_rh3_what_it_has_forgotten_it_does_not_take() -> None:
    state = log_state()
    state.forget(6)
    known = RehearsedBatches({"a": state}, STATEFUL, 12)
    assert run(known, QueryPosition(7, 6))[0][1] == 1
    forgotten = RehearsedBatches({"a": state}, STATEFUL, 12)
    assert run(forgotten, QueryPosition(7, 5)) == [(5, 0)] * REHEARSED_BATCHES


def test_rh3_an_empty_batch_moves_nothing() -> None:
    batches = RehearsedBatches({"a": log_state(), "b": log_state()}, STATEFUL, 4)
    plan = present(batches.plan(QueryPosition(7, 4, has_rows=True)))
    assert plan.inputs == (("a", ()), ("b", ()))
    assert plan.after == QueryPosition(8, 4, has_rows=True)
