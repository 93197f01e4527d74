"""Tentative plans over random logs, asked for at any time: PT1-PT8 of
``protocol.stage.planner``, each stated bucket by bucket.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryKind, LogEntry, Part
from anabranch.protocol.stage.planner import (
    Plan,
    PlanTraits,
    QueryPosition,
    next_plan,
    next_tentative_plan,
)
from harness.boundary_logs import LAST, WRITERS, logs
from harness.examples import examples

LogStates = dict[str, LogState]
Chosen = dict[str, str | None]

traits_drawn = st.builds(
    lambda stateful, safe, timers: PlanTraits(
        is_stateful=stateful, is_batch_safe=safe, has_timers=timers and stateful and not safe
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
chosen_drawn = st.fixed_dictionaries(
    {"a": st.sampled_from((None, *WRITERS)), "b": st.sampled_from((None, *WRITERS))}
)


def best_of(
    log_state: LogState, replica: str | None, bucket: int
) -> tuple[str, tuple[Part, ...], str]:
    """PT6 for one bucket: (writer, parts, where from)."""
    if bucket <= log_state.upto:
        found = log_state.stable(bucket, bucket)
        return (found[0][1], found[0][2], "stable") if found else ("", (), "stable")
    made = None if replica is None else log_state.tentative(replica, bucket)
    if made is not None:
        return made.replica, made.parts, "tentative"
    return (*log_state.open_parts(bucket), "open")


def missing_of(name: str, log_state: LogState, replica: str | None, bucket: int) -> set[str]:
    _, _, source = best_of(log_state, replica, bucket)
    if source == "stable":
        return set()
    made = None if replica is None else log_state.tentative(replica, bucket)
    return set(made.missing or (name,)) if made is not None else {name}


def assert_tentative(
    plan: Plan,
    position: QueryPosition,
    log_states: LogStates,
    chosen: Chosen,
    due: int,
    traits: PlanTraits,
    rows_max: int,
    buckets_max: int,
) -> None:
    inside = range(position.bucket + 1, plan.after.bucket + 1)
    assert plan.before == position
    assert plan.kind is BoundaryKind.TENTATIVE, "PT8"
    assert plan.after.sequence == position.sequence + 1
    assert [name for name, _ in plan.inputs] == list(log_states), "PT1"
    for name, taken in plan.inputs:
        expected = [
            (n, *found[:2])
            for n in inside
            if (found := best_of(log_states[name], chosen[name], n))[1]
        ]
        assert list(taken) == expected, "PT2, PT6"
    assert plan.after.bucket <= max(due, position.bucket), "PT2"
    assert set(plan.missing) == {
        m
        for name, log_state in log_states.items()
        for n in inside
        for m in missing_of(name, log_state, chosen[name], n)
    }
    assert list(plan.missing) == sorted(plan.missing)
    assert bool(plan.missing) == any(
        n > log_state.upto for log_state in log_states.values() for n in inside
    ), "PT7"
    sizes: dict[int, int] = {}
    for _, taken in plan.inputs:
        for bucket, _, parts in taken:
            sizes[bucket] = sizes.get(bucket, 0) + sum(p.rows for p in parts)
    assert plan.rows == sum(sizes.values())
    assert len(sizes) <= 1 or (plan.rows <= rows_max and len(sizes) <= buckets_max), "PT4"
    if not traits.is_batch_safe:
        assert len(sizes) <= 1, "PT3"
        assert not traits.has_timers or len(inside) <= 1 or not (position.has_rows or sizes), "PT3"
    elif inside and plan.after.bucket < due:
        after = plan.after.bucket + 1
        more = [
            sum(p.rows for p in best_of(log_state, chosen[name], after)[1])
            for name, log_state in log_states.items()
        ]
        assert plan.rows + sum(more) > rows_max or len(sizes) >= buckets_max, (
            "all that are due, within the limits"
        )
    assert plan.after.has_rows == (position.has_rows or bool(sizes) or plan.after.has_rows)


@examples(400)
@given(
    logs(steps=8, parts_max=5, faults=False),
    logs(steps=8),
    traits_drawn,
    st.integers(0, 5),
    st.lists(
        st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(0, LAST), chosen_drawn),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 6),
    st.integers(1, 4),
)
def test_every_bucket_once_in_order_from_the_best_there_is(
    first: list[LogEntry],
    second: list[LogEntry],
    traits: PlanTraits,
    begun: int,
    steps: list[tuple[int, int, int, Chosen]],
    rows_max: int,
    buckets_max: int,
) -> None:
    """A query runs stable plans for a while, becomes a branch, and is then asked at any time
    while both logs grow.
    """
    entries = {"a": first, "b": second}
    log_states = {name: LogState(WRITERS) for name in entries}
    read = dict.fromkeys(entries, 0)

    def grow(name: str, count: int) -> None:
        for offset in range(read[name], min(read[name] + count, len(entries[name]))):
            log_states[name].apply(offset, entries[name][offset])
        read[name] += count

    grow("a", begun)
    grow("b", begun)
    position, due = QueryPosition(), 0
    while (
        stable := next_plan(
            position, log_states, traits, rows_max=rows_max, buckets_max=buckets_max
        )
    ) is not None:
        assert stable.kind is BoundaryKind.STABLE
        assert stable.missing == ()
        position = stable.after
    read_upto = position.bucket
    for more_a, more_b, further, chosen in steps:
        grow("a", more_a)
        grow("b", more_b)
        due = max(due, min(LAST, position.bucket + further))
        while (
            plan := next_tentative_plan(
                position,
                log_states,
                chosen,
                due,
                traits,
                rows_max=rows_max,
                buckets_max=buckets_max,
            )
        ) is not None:
            assert_tentative(plan, position, log_states, chosen, due, traits, rows_max, buckets_max)
            assert plan.after.bucket > position.bucket, "each plan gets on"
            position = plan.after
        assert position.bucket == max(due, read_upto), "none left out"


@examples(150)
@given(
    logs(tentative=False, steps=12, parts_max=4, faults=False),
    logs(tentative=False, steps=12, parts_max=4, faults=False),
    traits_drawn,
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 24),
)
def test_stable_plans_take_each_bucket_once_in_order_within_the_limits(
    first: list[LogEntry],
    second: list[LogEntry],
    traits: PlanTraits,
    rows_max: int,
    buckets_max: int,
    every: int,
) -> None:
    """PN1-PN4 while the logs grow, with plans after ``every`` so many records, and at the end."""
    log_states = {"a": LogState(WRITERS), "b": LogState(WRITERS)}
    position = QueryPosition()
    seen: dict[str, list[int]] = {"a": [], "b": []}
    for offset in range(longest := max(len(first), len(second))):
        for log_state, entries in zip(log_states.values(), (first, second), strict=True):
            for entry in entries[offset : offset + 1]:
                log_state.apply(offset, entry)
        if (offset + 1) % every and offset + 1 < longest:
            continue
        last = min(log_state.upto for log_state in log_states.values())
        while (
            plan := next_plan(
                position, log_states, traits, rows_max=rows_max, buckets_max=buckets_max
            )
        ) is not None:
            assert plan.before == position, "PN1"
            assert position.bucket < plan.after.bucket <= last
            inside = {name: [b for b, _, _ in taken] for name, taken in plan.inputs}
            for name, buckets in inside.items():
                assert all(position.bucket < b <= plan.after.bucket for b in buckets)
                seen[name] += buckets
            filled = {b for buckets in inside.values() for b in buckets}
            assert len(filled) <= 1 or traits.is_batch_safe, "PN3"
            assert len(filled) <= 1 or plan.rows <= rows_max, "PN4"
            assert len(filled) <= max(1, buckets_max), "PN4"
            if traits.has_timers and position.has_rows:
                assert plan.after.bucket == position.bucket + 1, "PN3"
            position = plan.after
        assert position.bucket == last, "none left out"
    assert seen == {
        name: [b for b, _, _ in log_state.stable(1, position.bucket)] if position.bucket else []
        for name, log_state in log_states.items()
    }, "PN2"
