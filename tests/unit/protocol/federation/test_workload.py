"""Tests of the measurement of a stage by the logs of its input and its stream."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.federation.workload import (
    KEPT_BUCKETS,
    ROW_PER_SECOND,
    WAITS_MAX,
    Workload,
)

WIDTH_MS, METER_MS = 250, 1_000
SLOT = 10
"""Slot of buckets 40 to 43: they end at 10 000, 10 250, 10 500 and 10 750 ms."""
FIRST, LAST = 40, 43


def followed(*inputs: str) -> Workload:
    """From bucket 38 on."""
    made = Workload(inputs or ("a",), WIDTH_MS)
    for stream in inputs or ("a",):
        made.arrived(stream, 38, {})
    made.made("north.0", 38)
    return made


def test_a_slot_counts_the_rows_of_its_buckets_by_who_closed_them() -> None:
    load = followed()
    load.arrived("a", 44, {39: 100, FIRST: 5, 41: 6, 42: 7, LAST: 8, 44: 100})
    load.made("north.0", 40)
    load.made("south.0", 44)
    assert load.is_over(SLOT, METER_MS)
    assert load.units(SLOT, METER_MS, ["north.0"], 250) == 20
    assert load.units(SLOT, METER_MS, ["south.0"], 750) == 28
    assert load.units(SLOT, METER_MS, ["east.0"], 1_000) == 0
    assert load.has_made(SLOT, METER_MS, ["south.0"])
    assert not load.has_made(SLOT, METER_MS, ["east.0"])
    assert load.units(SLOT, METER_MS, ["south.0", "north.0"], 1_000) == 26
    assert load.has_made(SLOT, METER_MS, ["east.0", "south.0"])


def test_who_made_part_of_the_time_that_it_ran_is_paid_for_that_part() -> None:
    load = followed()
    load.arrived("a", LAST, dict.fromkeys(range(FIRST, LAST + 1), 10))
    load.made("south.0", 41)
    load.made("north.0", LAST)
    assert load.units(SLOT, METER_MS, ["south.0"], 1_000) == 20
    assert load.units(SLOT, METER_MS, ["south.0"], 500) == 40
    assert load.units(SLOT, METER_MS, ["south.0"], 100) == 40


def test_a_slot_waits_for_all_inputs_and_for_the_stage() -> None:
    load = followed("a", "b")
    load.arrived("a", LAST, {FIRST: 3})
    load.made("south.0", LAST)
    assert not load.is_over(SLOT, METER_MS)
    assert load.units(SLOT, METER_MS, ["south.0"], 1_000) is None
    load.arrived("b", LAST, {FIRST: 4})
    assert load.units(SLOT, METER_MS, ["south.0"], 1_000) == 7
    other = followed()
    other.arrived("a", LAST, {})
    assert not other.is_over(SLOT, METER_MS)


def test_a_slot_that_was_not_followed_whole_has_no_figure() -> None:
    load = Workload(("a",), WIDTH_MS)
    assert not load.is_over(SLOT, METER_MS)
    load.arrived("a", FIRST, {FIRST: 9})
    load.made("south.0", FIRST)
    load.arrived("a", LAST + 4, {41: 5})
    load.made("south.0", LAST + 4)
    assert load.units(SLOT, METER_MS, ["south.0"], 1_000) is None
    assert load.units(SLOT + 1, METER_MS, ["south.0"], 1_000) == 0


def test_load_is_the_mean_of_what_arrived_since_it_was_asked() -> None:
    load = Workload(("a", "b"), WIDTH_MS)
    assert load.load() is None
    load.arrived("a", 38, {})
    assert load.load() is None
    load.arrived("b", 38, {})
    assert load.load() is None
    assert load.load() is None
    load.arrived("a", 42, {39: 3, 42: 3})
    load.arrived("b", 42, {40: 4})
    assert load.load() == 10
    load.arrived("a", 50, {})
    assert load.load() is None
    load.arrived("b", 46, {})
    assert load.load() == 0


def test_a_stream_that_begins_later_begins_at_a_large_number() -> None:
    load, now = Workload(("a",), WIDTH_MS), 7_000_000_000
    load.arrived("a", 0, {})
    load.made("", 0)
    assert load.load() is None
    load.arrived("a", now, {now: 5})
    load.made("north.0", now)
    assert load.load() is None
    load.arrived("a", now + 4, {now + 1: 12})
    load.made("north.0", now + 4)
    assert load.load() == 12
    slot = now * WIDTH_MS // METER_MS
    assert load.units(slot, METER_MS, ["north.0"], 1_000) is None
    assert not load.has_made(slot - 1, METER_MS, ["north.0"])


def test_what_a_node_closes_a_second_time_stays_whose_it_was() -> None:
    load = followed()
    load.arrived("a", LAST, {FIRST: 8})
    load.made("south.0", LAST)
    load.made("north.0", LAST)
    load.made("north.0", FIRST)
    assert load.units(SLOT, METER_MS, ["south.0"], 1_000) == 8
    assert not load.has_made(SLOT, METER_MS, ["north.0"])


def test_memory_is_bounded_and_old_slots_have_no_figure() -> None:
    load = followed()
    upto = 38
    for _ in range(3):
        upto += KEPT_BUCKETS
        load.arrived("a", upto, dict.fromkeys(range(upto - KEPT_BUCKETS + 1, upto + 1), 1))
        load.made("south.0", upto)
    assert load.units(SLOT, METER_MS, ["south.0"], 1_000) is None
    last = upto * WIDTH_MS // METER_MS - 1
    assert load.units(last, METER_MS, ["south.0"], 1_000) == 4
    load.made("south.0", 10 * upto)
    load.arrived("a", 10 * upto, {})
    assert load.units(10 * last, METER_MS, ["south.0"], 1_000) == 0


def test_fv5_the_oldest_bucket_that_is_not_made_waits_since_all_inputs_have_it() -> None:
    load = followed("a", "b")
    assert load.waits_since() is None
    load.arrived("a", 40, {}, 1_000)
    assert load.waits_since() is None
    load.arrived("b", 39, {}, 2_000)
    load.arrived("b", 39, {}, 2_500)
    load.arrived("b", 40, {}, 3_000)
    assert load.waits_since() == 2_000
    load.made("south.0", 39)
    assert load.waits_since() == 3_000
    load.made("south.0", 40)
    assert load.waits_since() is None


def test_what_waits_is_bounded_and_the_oldest_is_remembered() -> None:
    load = followed()
    for number in range(WAITS_MAX + 5):
        load.arrived("a", 39 + number, {}, number)
    assert load.waits_since() == 0
    load.made("south.0", 39)
    assert load.waits_since() == 1
    load.made("south.0", 39 + WAITS_MAX)
    assert load.waits_since() == WAITS_MAX + 4
    load.made("south.0", 39 + WAITS_MAX + 4)
    assert load.waits_since() is None


@given(st.lists(st.integers(0, 3), max_size=20))
def test_the_order_of_reading_makes_no_difference(cuts: list[int]) -> None:
    ends = [38 + sum(cuts[: number + 1]) for number in range(len(cuts))]
    rows = {bucket: bucket % 5 for bucket in range(39, 120)}

    def loads(order: list[str]) -> list[int | None]:
        load, before = followed(), {"a": 38, "made": 38}
        steps: dict[str, Callable[[int], None]] = {
            "a": lambda end: load.arrived(
                "a", end, {b: rows[b] for b in range(before["a"] + 1, end + 1)}
            ),
            "made": lambda end: load.made(f"n{end % 3}", end),
        }
        for what in order:
            for end in ends:
                steps[what](end)
                before[what] = end
        return [load.units(slot, METER_MS, ["n1"], 1_000) for slot in range(9, 30)]

    assert loads(["a", "made"]) == loads(["made", "a"])


def test_the_unit_is_a_row_and_second() -> None:
    assert (ROW_PER_SECOND.reference, ROW_PER_SECOND.share_ppm) == ("row/s", 1_000_000)
