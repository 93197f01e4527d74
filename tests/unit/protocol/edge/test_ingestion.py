"""``protocol.edge.ingestion``, case by case; the properties are in
``tests/unit/protocol/edge/test_ingestion_properties.py``.
"""

from __future__ import annotations

import pytest

from anabranch.protocol.edge import ingestion
from anabranch.protocol.edge.ingestion import (
    APPEND_EVERY_MS,
    APPEND_OPEN_EVERY_MS,
    END_SILENCE_MS,
    HEARTBEAT_AHEAD_MS,
    IDLE_AFTER_MS,
    LOOK_EVERY_MS,
    LOOK_FRESH_MS,
    LOOK_GAP_MS,
    STILL_AFTER_MS,
    WAITING_AFTER_MS,
    ChunkFacts,
    EventTimeLimits,
    InputPartition,
    SourceMachine,
    SourceProgress,
    SourceRules,
    blocks_left,
)
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.limits import EVENT_TIME_MS_MAX
from anabranch.protocol.log.records import InputPosition

A = ("cars", 0)
B = ("cars", 1)
C = ("cars", 2)


def machine(
    partitions: int = 2,
    *,
    closed: int = 0,
    positions: tuple[InputPosition, ...] = (),
    past: int = 0,
    away_ms: int = 0,
    **rules: int | bool | None,
) -> SourceMachine:
    names, chosen = (
        {("cars", i): 0 for i in range(partitions)},
        SourceRules(**{"bucket_ms": 100, **rules}),  # type: ignore[arg-type]
    )
    return SourceMachine(
        chosen, names, SourceProgress(positions, closed, past=past, away_ms=away_ms), 0
    )


def speak(m: SourceMachine, now_ms: int, **event_times: int) -> int:
    """Partition a, b or c says this event time, in one more record; the last closed bucket."""
    facts = []
    for letter, event_time in event_times.items():
        at = ("cars", "abc".index(letter))
        facts.append(ChunkFacts(at, m.offsets()[at] + 1, event_time))
    m.read(facts, now_ms)
    return m.advance(now_ms)


def watch(m: SourceMachine, since_ms: int, until_ms: int, *silent: InputPartition) -> int:
    """Poll these partitions in vain at every chance. Return the last closed bucket."""
    for now_ms in range(since_ms, until_ms + 1, 100):
        for at in m.looks_due(now_ms):
            m.looked(at, empty=at in silent, begun_ms=now_ms, done_ms=now_ms)
    return m.advance(until_ms)


class TestPast:
    """IN11."""

    def test_is_what_the_boundary_would_have_passed_while_a_partition_is_silent(self) -> None:
        m = machine(out_of_orderness_ms=50)
        for now_ms in range(0, 2_001, 50):
            speak(m, now_ms, a=10_000 + now_ms, b=10_000 + now_ms)
        assert (m.closed, m.past) == (119, 119), "12 000 lies in bucket 120"
        for now_ms in range(2_050, 5_001, 50):
            speak(m, now_ms, a=10_000 + now_ms)
            assert (m.closed, m.past) == (119, (10_000 + now_ms - 1) // 100)

    def test_one_record_in_front_of_the_clock_moves_it_no_faster(self) -> None:
        m = machine(out_of_orderness_ms=50)
        for now_ms in range(0, 40_001, 50):
            speak(
                m,
                now_ms,
                a=10_000 + now_ms + (30_000 if now_ms == 10_000 else 0),
                b=10_000 + now_ms,
            )
            assert m.past <= (10_000 + now_ms - 1) // 100
        assert m.past == 499

    def test_a_source_that_begins_again_goes_on_where_the_one_before_was(self) -> None:
        there = (InputPosition("cars", 0, 9, 40_000), InputPosition("cars", 1, 9, 11_000))
        m = machine(closed=109, positions=there, past=119, away_ms=3_000)
        assert m.past == 119
        m.read([ChunkFacts(A, 10, 15_000)], 500)
        m.advance(500)
        assert m.past == (119 * 100 + 3_500) // 100

    def test_is_never_below_the_boundary(self) -> None:
        m = machine(1, partition_idle_ms=None, source_idle_ms=100)
        speak(m, 0, a=1_000)
        for now_ms in range(100, 3_000, 100):
            watch(m, now_ms, now_ms, A)
            assert m.past >= m.closed
        assert m.past > 20


class TestBoundary:
    def test_is_the_lowest_low_mark_and_strict(self) -> None:
        m = machine(out_of_orderness_ms=50)
        assert speak(m, 1, a=1_000) == 0, "b has not spoken"
        assert speak(m, 2, b=2_000) == 9, "950: bucket 10 (901..1000) is open"
        assert speak(m, 3, a=1_050) == 9, "1000 itself may still come, and is in bucket 10"
        assert speak(m, 4, a=1_051) == 10

    def test_records_without_a_time_move_only_the_position(self) -> None:
        m = machine(1)
        m.read([ChunkFacts(A, 7, None)], 1)
        assert m.advance(1) == 0
        assert m.positions() == (InputPosition("cars", 0, 7, 0),)

    def test_a_position_does_not_go_back(self) -> None:
        m = machine(1)
        m.read([ChunkFacts(A, 7, None)], 1)
        with pytest.raises(LocalProtocolError, match="would go back to 6"):
            m.read([ChunkFacts(A, 6, None)], 1)

    def test_nothing_read_closes_nothing(self) -> None:
        assert machine(0).advance(5) == 0
        assert machine(0).waiting_for(5) is None


class TestLimits:
    def test_late_is_all_that_is_closed(self) -> None:
        m = machine(1)
        speak(m, 1, a=1_000)
        assert m.limits(0).late_upto_ms == 900
        assert m.limits(0).reassigned_ms == 901

    def test_ahead_is_by_the_wall_clock(self) -> None:
        assert machine(max_ahead_ms=60_000).limits(5_000).ahead_above_ms == 65_000
        assert machine(max_ahead_ms=None).limits(5_000).ahead_above_ms == EVENT_TIME_MS_MAX
        assert (
            machine(max_ahead_ms=EVENT_TIME_MS_MAX).limits(5_000).ahead_above_ms
            == EVENT_TIME_MS_MAX
        )

    def test_a_heartbeat_is_bounded_by_what_the_source_says_where_no_clock_bounds_it(self) -> None:
        m = machine(max_ahead_ms=None)
        assert m.limits(5_000).beat_above_ms() == 5_000 + HEARTBEAT_AHEAD_MS, (
            "nobody has said anything"
        )
        speak(m, 1, a=1_000)
        assert m.limits(5_000).beat_above_ms() == 1_000 + HEARTBEAT_AHEAD_MS
        assert m.limits(5_000).beat_above_ms(3_000) == 3_000 + HEARTBEAT_AHEAD_MS
        assert machine(max_ahead_ms=60_000).limits(5_000).beat_above_ms(9_000) == 65_000


class TestRestart:
    def test_goes_on_where_the_record_says(self) -> None:
        m = machine(
            closed=7,
            positions=(InputPosition("cars", 0, 40, 850), InputPosition("cars", 1, 50, 900)),
        )
        assert m.offsets() == {A: 40, B: 50}
        assert m.limits(0).late_upto_ms == 700
        assert m.advance(1) == 8, "nobody has to speak again"

    def test_a_partition_that_is_gone_keeps_its_position(self) -> None:
        old = InputPosition("old", 3, 40, 850)
        m = machine(1, positions=(old, InputPosition("cars", 0, 5, 5)))
        assert m.positions() == (InputPosition("cars", 0, 5, 5), old)
        m.add(("old", 3), 0, 9)
        assert m.offsets()["old", 3] == 40
        assert m.positions() == (InputPosition("cars", 0, 5, 5), old)

    def test_a_new_partition_holds_the_boundary(self) -> None:
        m = machine(1)
        speak(m, 1, a=1_000)
        m.add(B, 3, 2)
        assert speak(m, 3, a=2_000) == 9
        assert speak(m, 4, b=1_500) == 14
        assert m.offsets()[B] == 4

    def test_a_position_moves_past_what_is_never_shown_and_is_recorded(self) -> None:
        """IN15."""
        m = machine()
        speak(m, 0, a=1_000, b=1_000)
        m.named()
        assert not m.moves_unread(10)
        m.skip_hidden(A, m.offsets()[A])
        assert not m.moves_unread(10)
        m.skip_hidden(A, m.offsets()[A] + 1)
        assert m.moves_unread(10)
        assert m.offsets()[A] == m.offsets()[B] + 1
        m.named()
        assert not m.moves_unread(10)

    def test_positions_name_the_topic_in_which_they_count(self) -> None:
        m = SourceMachine(
            SourceRules(bucket_ms=100), {A: 0}, SourceProgress(), 0, topic_ids={A[0]: "id"}
        )
        assert [each.topic_id for each in m.positions()] == ["id"]


class TestPushedBack:
    def test_reads_nothing_until_half_is_done_with(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ingestion, "BLOCKS_KEPT_MAX", 10)
        m = machine()
        assert [(len(m.to_read(0, kept)), m.is_pushed_back) for kept in (9, 10, 6, 5, 9, 10)] == [
            (2, False),
            (0, True),
            (0, True),
            (2, False),
            (2, False),
            (0, True),
        ]

    def test_what_no_reader_can_be_done_with_does_not_count(self) -> None:
        offsets = {0: (3, 10), 1: (0, 4)}
        assert blocks_left(offsets, []) == 11
        assert blocks_left(offsets, [(0, 7), (0, 5), (0, 8)]) == 2 + 4
        assert blocks_left(offsets, [(0, 3), (1, 0)]) == 0
        assert blocks_left(offsets, [(0, 2), (1, 9), (2, 0)]) == 0 + 4


class TestFoundPartition:
    """B exists for a while, and has records, when it is found."""

    def test_what_belongs_below_the_boundary_of_that_moment_is_not_late(self) -> None:
        m = machine(1, out_of_orderness_ms=50)
        speak(m, 1, a=30_000)
        m.add(B, 2, 2)
        newest_ms = {A: 30_000, B: 0}
        assert m.limits(0) == EventTimeLimits(29_900, 60_000, {B: 29_900}, newest_ms=newest_ms)
        m.read([ChunkFacts(B, 7, 29_950)], 3)
        assert m.limits(0).never_late == {B: 29_900}, "29 900 may still come"
        m.read([ChunkFacts(B, 8, 29_951)], 4)
        assert m.limits(0).never_late == {}

    def test_a_restart_in_the_middle_knows_it(self) -> None:
        m = machine(1)
        speak(m, 1, a=30_000)
        m.add(B, 2, 2)
        m.read([ChunkFacts(B, 5, 20_000)], 3)
        again = machine(2, closed=m.advance(3), positions=m.positions())
        assert (again.limits(0).never_late, again.offsets()[B]) == ({B: 29_900}, 5)

    def test_one_that_came_while_nobody_looked_is_found_at_the_start(self) -> None:
        m = machine(closed=7, positions=(InputPosition("cars", 0, 30, 850),))
        assert m.limits(0).never_late == {B: 700}

    def test_what_a_source_begins_with_is_not_found(self) -> None:
        m = machine()
        speak(m, 1, a=1_000)
        assert m.limits(0).never_late == {}


class TestIdlePartition:
    def test_is_left_out_while_others_speak(self) -> None:
        m = machine(partition_idle_ms=3_000)
        speak(m, 0, a=1_000, b=1_000)
        watch(m, 400, 3_400, B)
        assert m.advance(3_400) == 9, "nobody else has spoken either"
        assert speak(m, 3_400, a=4_000) == 9, "the source was silent: b gets its time from here"
        assert watch(m, 3_500, 6_300, B) == 9
        assert watch(m, 6_400, 6_500, B) == 39

    def test_is_left_out_at_once_if_the_source_never_fell_silent(self) -> None:
        m = machine(partition_idle_ms=3_000)
        speak(m, 0, a=1_000, b=1_000)
        watch(m, 400, 1_500, B)
        speak(m, 1_600, a=2_600)
        watch(m, 1_600, 3_300, B)
        speak(m, 3_300, a=4_000)
        assert m.advance(3_300) == 9, "observed from 400 on"
        watch(m, 3_400, 3_600, B)
        assert m.advance(3_600) == 39

    def test_counts_again_when_it_speaks(self) -> None:
        m = machine(partition_idle_ms=3_000)
        self._left_out(m)
        assert speak(m, 6_800, b=1_500) == 39, "never back"
        assert speak(m, 6_900, a=5_000) == 39, "b holds again"
        assert speak(m, 7_000, b=4_800) == 47

    def test_stays_left_out_over_a_silence_of_the_others(self) -> None:
        m = machine(partition_idle_ms=3_000)
        self._left_out(m)
        watch(m, 6_800, 20_000, A, B)
        assert speak(m, 20_000, a=18_000) == 179

    def test_needs_a_fresh_look(self) -> None:
        m = machine(partition_idle_ms=3_000)
        self._left_out(m)
        assert speak(m, 6_700 + LOOK_FRESH_MS + 1, a=5_000) == 39, (
            "the process slept: b may have spoken"
        )

    def test_is_not_silent_while_nobody_looks(self) -> None:
        m = machine(partition_idle_ms=3_000)
        speak(m, 0, a=1_000, b=1_000)
        watch(m, 400, 2_000, B)
        later = 2_000 + LOOK_GAP_MS + 500
        speak(m, later, a=4_000)
        watch(m, later, later + 2_800, B)
        assert speak(m, later + 2_800, a=5_000) == 9

    def test_a_never_speaking_one_is_left_out_too(self) -> None:
        m = machine(3, partition_idle_ms=3_000)
        for now in range(0, 4_000, 500):
            speak(m, now, a=1_000 + now, b=1_000 + now)
            watch(m, now, now + 400, ("cars", 2))
        assert m.closed == 44

    @staticmethod
    def _left_out(m: SourceMachine) -> None:
        speak(m, 0, a=1_000, b=1_000)
        speak(m, 3_400, a=4_000)
        assert watch(m, 3_500, 6_700, B) == 39

    def test_is_left_out_again_after_a_restart_by_the_first_look(self) -> None:
        m = machine(partition_idle_ms=3_000)
        self._left_out(m)
        again = machine(closed=m.closed, positions=m.positions(), partition_idle_ms=3_000)
        assert speak(again, 100, a=5_000) == 39, "nobody has looked yet"
        again.looked(B, empty=None, begun_ms=150, done_ms=150)
        assert again.positions() == (
            InputPosition("cars", 0, 3, 5_000),
            InputPosition("cars", 1, 1, 1_000, idle=True),
        )
        assert watch(again, 600, 600, B) == 49
        assert speak(again, 700, a=6_000) == 59

    def test_is_not_left_out_after_a_restart_if_it_has_something_to_say(self) -> None:
        m = machine(partition_idle_ms=3_000)
        self._left_out(m)
        again = machine(closed=m.closed, positions=m.positions(), partition_idle_ms=3_000)
        speak(again, 100, a=5_000)
        assert watch(again, 200, 300) == 39, "there is more of b than was read"
        assert speak(again, 400, b=4_500) == 44
        assert watch(again, 500, 3_000, B) == 44
        assert speak(again, 3_100, a=6_000) == 44, "it has its whole time again"

    def test_is_not_left_out_after_a_restart_if_the_rules_have_changed(self) -> None:
        m = machine(partition_idle_ms=3_000)
        self._left_out(m)
        again = machine(closed=m.closed, positions=m.positions(), partition_idle_ms=None)
        assert [position.idle for position in again.positions()] == [False, False]

    def test_is_never_left_out_if_so_configured(self) -> None:
        m = machine(partition_idle_ms=None)
        speak(m, 0, a=1_000, b=1_000)
        assert m.looks_due(10_000) == [], "then nobody needs to look"
        assert speak(m, 10_000, a=11_000) == 9


class TestIdleSource:
    def test_goes_on_by_the_time_observed(self) -> None:
        m = machine(out_of_orderness_ms=50, source_idle_ms=1_000)
        speak(m, 0, a=1_000, b=3_000)
        assert watch(m, 400, 1_300, A, B) == 9
        assert watch(m, 1_400, 2_400, A, B) == 19, "since 400, less 1000: 950 + 1000"
        assert watch(m, 2_500, 3_200, A, B) == 27

    def test_starts_anew_after_speech(self) -> None:
        m = machine(1, source_idle_ms=1_000)
        speak(m, 0, a=1_000)
        assert watch(m, 400, 2_400, A) == 19
        assert speak(m, 2_500, a=2_500) == 24
        assert watch(m, 2_600, 3_900, A) == 24
        assert watch(m, 4_000, 4_900, A) == 34

    def test_one_that_speaks_ends_it(self) -> None:
        m = machine(source_idle_ms=1_000)
        speak(m, 0, a=1_000, b=1_000)
        watch(m, 400, 800, A, B)
        for now in range(900, 5_000, 300):
            speak(m, now, b=1_000 + now)
        assert watch(m, 5_000, 5_100, A) == 9

    def test_without_any_time_there_is_nothing_to_go_on_from(self) -> None:
        assert watch(machine(source_idle_ms=1_000), 0, 9_000, A, B) == 0

    def test_partitions_that_never_spoke_do_not_count(self) -> None:
        m = machine(source_idle_ms=1_000)
        speak(m, 0, a=1_000)
        assert watch(m, 0, 2_400, A, B) == 19

    def test_one_that_never_spoke_holds_the_boundary_until_the_silence_was_long_enough(
        self,
    ) -> None:
        m = machine(partition_idle_ms=None, source_idle_ms=1_000)
        speak(m, 0, a=1_000)
        assert watch(m, 100, 1_100, A, B) == 0
        assert watch(m, 1_200, 2_000, A, B) == 12

    def test_a_restarted_source_goes_on_from_its_boundary(self) -> None:
        m = machine(
            1, closed=10, positions=(InputPosition("cars", 0, 5, 900),), source_idle_ms=1_000
        )
        assert watch(m, 0, 2_000, A) == 20

    def test_a_look_that_ended_before_the_silence_began_says_nothing(self) -> None:
        m = machine(source_idle_ms=500)
        speak(m, 0, a=1_000, b=1_000)
        m.looked(A, empty=True, begun_ms=100, done_ms=100)
        m.looked(B, empty=True, begun_ms=800, done_ms=800)
        assert m.advance(900) == 9


class TestEnd:
    def test_closes_the_last_bucket_once_all_is_read(self) -> None:
        m = machine(bounded=True, out_of_orderness_ms=500)
        speak(m, 0, a=1_000, b=3_120)
        assert m.closed == 4
        assert watch(m, 400, 300 + END_SILENCE_MS, A, B) == 4
        assert watch(m, 400 + END_SILENCE_MS, 800 + END_SILENCE_MS, A, B) == 32
        assert m.waiting_for(600_000) is None

    def test_what_was_closed_stays_closed_when_more_comes(self) -> None:
        m = machine(bounded=True)
        speak(m, 0, a=1_000, b=3_120)
        watch(m, 400, 3_000, A, B)
        assert speak(m, 3_100, a=3_150) == 32
        assert speak(m, 3_200, a=5_000, b=4_000) == 39

    def test_unread_records_keep_it_open(self) -> None:
        m = machine(bounded=True)
        speak(m, 0, a=1_000, b=3_120)
        assert watch(m, 400, 9_000, A) == 9

    def test_empty_topics_close_nothing(self) -> None:
        assert watch(machine(bounded=True), 0, 9_000, A, B) == 0


class TestLooks:
    def test_are_due_where_silence_matters(self) -> None:
        assert machine(1, partition_idle_ms=5_000).looks_due(9) == [], "there are no others"
        assert machine(2, partition_idle_ms=5_000).looks_due(9) == [A, B]
        assert machine(1, partition_idle_ms=None, source_idle_ms=1).looks_due(9) == [A]
        assert machine(1, partition_idle_ms=None, bounded=True).looks_due(9) == [A]

    def test_have_a_pause_between_them(self) -> None:
        m = machine()
        m.looked(A, empty=False, begun_ms=10, done_ms=500)
        speak(m, 600, b=1_000)
        assert m.looks_due(499 + LOOK_EVERY_MS) == []
        assert m.looks_due(500 + LOOK_EVERY_MS) == [A]


class TestWaitingFor:
    def test_names_the_lowest_partition_once_it_is_silent_for_a_while(self) -> None:
        m = machine()
        speak(m, 0, a=1_000, b=500)
        assert m.waiting_for(WAITING_AFTER_MS - 1) is None
        assert m.waiting_for(WAITING_AFTER_MS) == B
        speak(m, WAITING_AFTER_MS, b=1_200)
        assert m.waiting_for(WAITING_AFTER_MS) == A

    def test_names_one_that_never_spoke(self) -> None:
        assert machine().waiting_for(WAITING_AFTER_MS) == A

    def test_names_none_that_is_left_out(self) -> None:
        m = machine(partition_idle_ms=3_000)
        TestIdlePartition._left_out(m)
        assert m.waiting_for(6_700) == A


class TestEventTimeEnds:
    def test_where_the_newest_record_is_once_no_partition_has_spoken_for_long(self) -> None:
        m = machine()
        assert m.event_time_ends_ms(IDLE_AFTER_MS) is None, "nothing is known"
        speak(m, 10, a=1_000, b=500)
        assert m.event_time_ends_ms(9 + IDLE_AFTER_MS) is None
        assert m.event_time_ends_ms(10 + IDLE_AFTER_MS) == 1_000
        speak(m, 10 + IDLE_AFTER_MS, b=1_200)
        assert m.event_time_ends_ms(10 + IDLE_AFTER_MS) is None

    def test_a_source_without_partitions_has_none(self) -> None:
        assert machine(0).event_time_ends_ms(IDLE_AFTER_MS) is None


class TestTooMuchOpen:
    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ingestion, "PENDING_PARTS_HOLD", 10)

    def test_all_are_read_until_then(self) -> None:
        m = machine(3)
        speak(m, 1, a=1_000, b=2_000, c=1_090)
        assert m.to_read(9) == {A, B, C}

    def test_those_are_read_that_hold_the_boundary_back_until_half_is_closed(self) -> None:
        m = machine(3)
        speak(m, 1, a=1_000, b=2_000, c=950)
        assert m.to_read(10) == {A, C}
        speak(m, 2, a=1_500)
        assert m.to_read(12) == {C}
        speak(m, 3, c=3_000)
        assert m.to_read(6) == {A}
        assert m.to_read(5) == {A, B, C}
        assert m.to_read(9) == {A, B, C}

    def test_in16_with_more_open_only_the_lowest_is_read_and_at_last_none(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ingestion, "PENDING_PARTS_NARROW", 12)
        monkeypatch.setattr(ingestion, "PENDING_PARTS_STOP", 14)
        m = machine(3, out_of_orderness_ms=10_000)
        speak(m, 1, a=1_000, b=2_000, c=950)
        assert m.to_read(11) == {A, B, C}, "by the out-of-orderness all hold it back"
        assert m.to_read(12) == m.to_read(13) == {C}
        seen = [m.is_stopped]
        for open_parts, read in ((14, set()), (12, set()), (11, {A, B, C})):
            assert m.to_read(open_parts) == read
            seen.append(m.is_stopped)
        assert seen == [False, True, True, False]

    def test_in16_a_source_that_has_stopped_goes_on_with_other_rules(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ingestion, "PENDING_PARTS_STOP", 14)
        m = machine(2, out_of_orderness_ms=10_000)
        speak(m, 1, a=5_000, b=6_000)
        assert m.to_read(14) == set()
        assert not m.moves_unread(900_000), "time alone opens nothing"
        again = machine(2, positions=m.positions(), out_of_orderness_ms=1_000)
        assert again.to_read(14) == set()
        assert again.moves_unread(2)
        assert again.closed == 39

    @pytest.mark.parametrize(
        ("bucket_ms", "out_of_orderness_ms", "parts"),
        [(50, 86_400_000, 1_728_000), (1_000, 86_400_000, 345_600), (100, 0, 0)],
    )
    def test_a_source_without_pauses_has_a_part_for_each_bucket_and_round(
        self, bucket_ms: int, out_of_orderness_ms: int, parts: int
    ) -> None:
        assert ingestion.open_parts_expected(bucket_ms, out_of_orderness_ms) == parts

    def test_one_that_never_spoke_holds_it_back(self) -> None:
        m = machine(2)
        speak(m, 1, a=1_000)
        assert m.to_read(10) == {B} == m.holding()

    def test_one_that_is_left_out_does_not(self) -> None:
        m = machine(3, partition_idle_ms=3_000)
        speak(m, 0, a=1_000, b=1_000, c=1_000)
        speak(m, 3_400, a=4_000, c=5_000)
        watch(m, 3_500, 6_700, B)
        assert m.to_read(10) == {A}

    def test_one_that_is_held_back_speaks_while_it_has_records(self) -> None:
        """Else a partition that has fallen silent would hold back for ever those that are not
        read since it does.
        """
        m = machine(partition_idle_ms=3_000)
        speak(m, 0, a=1_000, b=1_000)
        speak(m, 400, a=4_000)
        assert m.to_read(10) == {B}
        assert watch(m, 500, 5_000, B) == 39
        assert m.to_read(10) == {A}

    def test_one_that_is_held_back_and_silent_itself_does_not_speak(self) -> None:
        m = machine(partition_idle_ms=3_000)
        speak(m, 0, a=1_000, b=1_000)
        speak(m, 400, a=4_000)
        assert m.to_read(10) == {B}
        assert watch(m, 500, 9_000, A, B) == 9

    def test_without_an_answer_nothing_is_known_of_it(self) -> None:
        m = machine(partition_idle_ms=3_000)
        speak(m, 0, a=1_000, b=1_000)
        speak(m, 400, a=4_000)
        assert m.to_read(10) == {B}
        for now_ms in range(800, 9_000, 400):
            m.looked(A, empty=None, begun_ms=now_ms, done_ms=now_ms)
            m.looked(B, empty=True, begun_ms=now_ms, done_ms=now_ms)
        assert m.advance(9_000) == 9


class TestAppendPause:
    """Tests of a source with buckets of 1 000 ms and an out-of-orderness of 200 ms unless said
    otherwise.
    """

    def _at(self, now_ms: int, **event_times: int) -> SourceMachine:
        m = machine(bucket_ms=1_000, out_of_orderness_ms=200)
        speak(m, now_ms, **event_times)
        m.advance(now_ms)
        return m

    def test_the_next_record_is_made_when_a_bucket_is_due_to_close(self) -> None:
        m = self._at(
            0, a=2_100, b=2_150
        )  # event time 2 201 closes the second bucket: a in 101 ms, b in 51 ms
        assert m.append_pause_ms(0) == 101
        assert m.append_pause_ms(30) == 71

    def test_what_is_overdue_is_looked_for_often(self) -> None:
        m = self._at(0, a=2_100, b=2_150)
        assert m.append_pause_ms(100) == APPEND_EVERY_MS
        assert m.append_pause_ms(STILL_AFTER_MS - 1) == APPEND_EVERY_MS

    def test_nothing_to_close_soon_makes_few_records(self) -> None:
        assert self._at(0, a=1_300, b=1_300).append_pause_ms(0) == APPEND_OPEN_EVERY_MS

    def test_a_partition_that_does_not_get_on_is_not_awaited_anew_by_every_record(self) -> None:
        m = self._at(0, a=2_100, b=2_100)
        speak(m, 90, a=2_190, b=2_050)
        assert m.append_pause_ms(90) == APPEND_EVERY_MS

    def test_a_boundary_that_stands_still_makes_few_records(self) -> None:
        m = machine()
        assert m.append_pause_ms(STILL_AFTER_MS - 1) == APPEND_EVERY_MS, (
            "nobody ever spoke: due since long"
        )
        assert m.append_pause_ms(STILL_AFTER_MS) == APPEND_OPEN_EVERY_MS
        speak(m, STILL_AFTER_MS, a=1_000, b=1_000)
        assert m.advance(STILL_AFTER_MS + 1) > 0
        assert m.append_pause_ms(STILL_AFTER_MS + 2) < APPEND_OPEN_EVERY_MS

    def test_without_partitions_nothing_is_due(self) -> None:
        assert machine(0).append_pause_ms(0) == APPEND_EVERY_MS


class TestNaming:
    """Tests that what was read is named by one record, and until then the boundary stays (IN12)."""

    @staticmethod
    def silent_after(m: SourceMachine) -> int:
        """Let the partition that lagged stay idle until it is left out. Return the time then."""
        assert speak(m, 0, a=450, b=200) == 1
        for at_ms in range(100, 2_101, LOOK_EVERY_MS):
            m.looked(B, empty=True, begun_ms=at_ms, done_ms=at_ms)
            m.read([ChunkFacts(A, m.offsets()[A] + 1, 450)], at_ms)
        return 2_100

    def test_observed_silence_makes_a_record_due(self) -> None:
        m = machine(partition_idle_ms=1_000)
        now_ms = self.silent_after(m)
        m.named()
        assert m.moves_unread(now_ms)
        assert m.closed == 4
        assert not m.moves_unread(now_ms), "that is said"

    def test_not_while_something_that_was_read_has_no_name(self) -> None:
        m = machine(partition_idle_ms=1_000)
        now_ms = self.silent_after(m)
        assert not m.moves_unread(now_ms)
        assert m.closed == 1, "its rows may be of the buckets that would be closed"
        m.named()
        assert m.moves_unread(now_ms)

    def test_a_source_that_gets_on_without_closing_anything_says_so(self) -> None:
        m = machine(1, bucket_ms=10_000, source_idle_ms=100)
        speak(m, 0, a=1_000)
        m.named()
        for at_ms in range(0, 12_000, LOOK_EVERY_MS):
            m.looked(A, empty=True, begun_ms=at_ms, done_ms=at_ms)
        assert m.moves_unread(12_000)
        assert (m.closed, m.past) == (1, 1)
