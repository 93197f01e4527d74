"""Which batches are measured, and which rows count as arrived."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.log.records import BoundaryKind
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.load_control import COLD_BATCHES, LoadControl
from anabranch.protocol.stage.load_watch import LoadWatch
from anabranch.protocol.stage.planner import Plan, QueryPosition
from harness.replica_bench import Stream, part

PLAN = Plan(QueryPosition(), QueryPosition(1, 5), (), 1_000)
HALF = replace(PLAN, kind=BoundaryKind.TENTATIVE, kept=500)


class Measured(LoadControl):
    """Control that notes what it is told."""

    def __init__(self) -> None:
        super().__init__(1_000)
        self.batches: list[tuple[int, int, bool]] = []
        self.cold: list[tuple[int, int]] = []

    def took_cold(self, rows: int, duration_ms: int) -> None:
        self.cold.append((rows, duration_ms))

    def took(self, rows: int, duration_ms: int, *, beside: bool) -> None:
        self.batches.append((rows, duration_ms, beside))


def warm(*queries: str) -> tuple[LoadWatch, Measured]:
    """Return a watch of queries that have run their first batches."""
    control = Measured()
    watch = LoadWatch(control)
    for query in queries:
        for _ in range(COLD_BATCHES):
            watch.begins(query, PLAN, 1)
            watch.ends(query, 2, 0, is_successor=False)
    assert control.batches == []  # LW3
    assert control.cold == [(PLAN.rows, 1)] * COLD_BATCHES * len(queries)
    return watch, control


class TestBatches:
    def test_the_rows_that_were_kept_count(self) -> None:
        watch, control = warm("a")
        watch.begins("a", HALF, 1_000)
        watch.ends("a", 1_700, 0, is_successor=False)
        watch.ends("a", 1_900, 0, is_successor=False)
        assert control.batches == [(500, 700, False)]

    def test_lw4_the_rows_that_were_processed_count_whatever_the_plan_was_to_keep(self) -> None:
        watch, control = warm("a")
        watch.processed("a", 900)  # of no batch
        watch.begins("a", HALF, 1_000)
        watch.processed("a", 100)
        watch.ends("a", 1_700, 0, is_successor=False)
        assert control.batches == [(100, 700, False)]
        assert watch.key_shares.keys_for(100, KEPT_ALL) == pytest.approx(500, abs=20)
        watch.begins("a", HALF, 2_000)
        watch.processed("a", 0)
        assert watch.key_shares.keys_for(10, KEPT_ALL) == 500
        watch.begins("a", replace(HALF, kept=KEPT_ALL), 3_000)  # shows something
        assert watch.key_shares.keys_for(10, KEPT_ALL) < 500

    def test_not_while_the_process_was_paused(self) -> None:
        watch, control = warm("a")
        watch.begins("a", PLAN, 1_000)
        watch.ends("a", 9_000, 8_000, is_successor=False)
        assert control.batches == []

    def test_not_those_of_the_successor_nor_empty_ones(self) -> None:
        watch, control = warm("a")
        watch.begins("a", PLAN, 1_000)
        watch.ends("a", 1_700, 0, is_successor=True)
        watch.begins("a", replace(PLAN, rows=0), 1_000)
        watch.ends("a", 1_700, 0, is_successor=False)
        assert control.batches == []

    def test_beside_those_of_another_query(self) -> None:
        watch, control = warm("a", "b")
        watch.begins("b", PLAN, 1_000)
        watch.begins("a", PLAN, 1_100)  # b's runs
        watch.ends("b", 1_200, 0, is_successor=True)
        watch.ends("a", 1_700, 0, is_successor=False)
        watch.begins("a", PLAN, 2_000)
        watch.begins("b", PLAN, 2_100)  # begun meanwhile
        watch.ends("b", 2_200, 0, is_successor=True)
        watch.ends("a", 2_700, 0, is_successor=False)
        watch.begins("b", PLAN, 3_000)
        watch.dropped("b")
        watch.begins("a", PLAN, 3_100)
        watch.ends("a", 3_700, 0, is_successor=False)
        assert control.batches == [(1_000, 600, True), (1_000, 700, True), (1_000, 600, False)]

    def test_dropped_queries_are_forgotten_and_their_batches_are_not(self) -> None:
        """Each fork begins a query of another name, and a replica may fork for years."""
        watch, control = warm("a")
        for number in range(100):
            watch.begins(f"b{number}", PLAN, 1)
            watch.ends(f"b{number}", 2, 0, is_successor=True)
            watch.dropped(f"b{number}")
        assert len(watch._begun) == 1
        watch.begins("a", PLAN, 1_000)
        watch.begins("b", PLAN, 1_100)
        watch.dropped("b")
        watch.ends("a", 1_700, 0, is_successor=False)
        assert control.batches == [(1_000, 700, True)]


class TestArrivals:
    def test_lw1_rows_count_once_when_all_inputs_are_complete(self) -> None:
        control = LoadControl(1_000)
        watch = LoadWatch(control)
        streams = {"a": Stream(), "b": Stream()}
        states = {name: stream.log_state for name, stream in streams.items()}
        streams["a"].record(5, [part(5, 70)])
        streams["b"].record(4, [part(4, 30)])
        watch.looks(1_000, 0, states, 0)
        assert control.arrivals.rows_per_ms(1_100) == 0.0  # LW2
        assert watch.backlog == 30
        streams["b"].record(6)
        watch.looks(2_000, 0, states, 0)
        watch.looks(2_000, 0, states, 0)
        assert control.arrivals.rows_per_ms(2_000) == 0.07
        assert watch.backlog == 100

    def test_lw2_what_came_during_a_pause_waits_but_is_no_arrival(self) -> None:
        control = LoadControl(1_000)
        watch = LoadWatch(control)
        stream = Stream()
        watch.looks(1_000, 0, {"a": stream.log_state}, 0)
        stream.record(5, [part(5, 70)])
        watch.looks(9_000, 8_000, {"a": stream.log_state}, 0)
        assert (control.arrivals.rows_per_ms(9_100), watch.backlog) == (0.0, 70)

    def test_lw2_nor_what_comes_while_the_process_does_not_know_its_inputs(self) -> None:
        """It is counted all the same: the stable query may run it, and it is forgotten."""
        control = LoadControl(1_000)
        watch = LoadWatch(control)
        stream = Stream()
        watch.looks(1_000, 0, {"a": stream.log_state}, 0)
        stream.record(5, [part(5, 70)])
        watch.looks(2_000, None, {"a": stream.log_state}, 0)
        stream.log_state.forget(5)
        stream.record(6, [part(6, 30)])
        watch.looks(2_500, 2_400, {"a": stream.log_state}, 5)
        assert (control.arrivals.rows_per_ms(2_600), watch.backlog) == (0.0, 100)

    def test_the_stable_query_alone_works_off_the_backlog(self) -> None:
        watch = LoadWatch(LoadControl(1_000))
        stream = Stream()
        stream.record(5, [part(5, 1_500)])
        watch.looks(1_000, 0, {"a": stream.log_state}, 0)
        watch.begins("branch", HALF, 1_000)
        assert watch.backlog == 1_500
        watch.begins("stable", PLAN, 1_000)
        assert watch.backlog == 500
