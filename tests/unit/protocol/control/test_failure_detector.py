"""Tests of which process counts as alive, of observed time, and of what counts as silence."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.control.failure_detector import (
    OBSERVED_STEP_MS,
    QUERY_STUCK_MS,
    STUCK_MS,
    FailureDetector,
    ObservedTime,
    Peer,
    QueryStandstill,
    Silence,
    Standstill,
)
from anabranch.protocol.control.records import Heartbeat, ReplicaState
from anabranch.protocol.limits import FAILURE_AFTER_MS, HEARTBEAT_SEND_MS

NOW = 1_700_000_000_000
BEAT = Heartbeat("processing", "tolls", "0", 7, "running", 3, NOW)
ZERO, ONE = (Peer("processing", "tolls", replica) for replica in "01")
STAGE = ("processing", "tolls")
GAP_MS = OBSERVED_STEP_MS + 1


class Watcher:
    """Hears, and looks every 100 ms."""

    def __init__(self) -> None:
        self.detector, self.now = FailureDetector.of_replicas({"tolls": "10"}), NOW
        self.detector.look(self.now)

    def hears(self, beat: Heartbeat) -> bool:
        return self.detector.receive(beat, self.now)

    def passes(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 100):
            self.now += 100
            self.detector.look(self.now)

    def alive(self) -> list[str]:
        return list(self.detector.alive(*STAGE, self.now))


def test_dt2_alive_for_as_long_as_it_was_heard_lately() -> None:
    watcher = Watcher()
    assert watcher.hears(BEAT)
    watcher.passes(FAILURE_AFTER_MS - 100)
    assert watcher.alive() == ["0"]
    assert watcher.hears(replace(BEAT, replica="1"))
    assert watcher.alive() == ["0", "1"], "by id"
    watcher.passes(100)
    assert watcher.alive() == ["1"]
    assert watcher.detector.last(ZERO) == BEAT
    assert (
        watcher.detector.silent_ms(ZERO, watcher.now),
        watcher.detector.silent_ms(ONE, watcher.now),
    ) == (FAILURE_AFTER_MS, 100)
    assert watcher.detector.replicas(*STAGE) == ["0", "1"]


def test_dt5_an_epoch_that_the_log_does_not_have_hides_no_later_process() -> None:
    detector = FailureDetector([ZERO], follows_logs=True)
    assert not detector.receive(BEAT, NOW), "its log was not read yet"
    assert detector.began(ZERO, 7, NOW)
    assert detector.receive(BEAT, NOW)
    assert not detector.receive(replace(BEAT, epoch=2**62), NOW)
    assert not detector.receive(replace(BEAT, epoch=6), NOW)
    assert detector.began(ZERO, 9, NOW)
    assert not detector.receive(BEAT, NOW)
    assert detector.receive(replace(BEAT, epoch=9), NOW)
    assert detector.last(ZERO) == replace(BEAT, epoch=9)


def test_a_sign_of_life_need_not_be_a_heartbeat() -> None:
    watcher = Watcher()
    watcher.passes(700)
    watcher.detector.lives(ZERO, watcher.now)
    assert watcher.detector.silent_ms(ZERO, watcher.now) == 0
    assert watcher.detector.silent_ms(ONE, watcher.now) == 700
    assert watcher.detector.last(ZERO) is None


def test_dt2_whoever_begins_to_listen_takes_nobody_for_dead_yet() -> None:
    watcher = Watcher()
    assert (watcher.alive(), watcher.detector.silent("tolls", watcher.now)) == ([], frozenset())
    watcher.passes(FAILURE_AFTER_MS - 100)
    watcher.hears(BEAT)
    watcher.passes(100)
    assert watcher.detector.silent("tolls", watcher.now) == {"1"}
    assert watcher.detector.silent("a source", watcher.now) == frozenset()


def test_who_was_never_heard_has_been_silent_since_one_listens() -> None:
    watcher = Watcher()
    watcher.passes(700)
    assert (
        watcher.detector.last(ONE),
        watcher.detector.silent_ms(ONE, watcher.now),
        watcher.alive(),
    ) == (None, 700, [])


@pytest.mark.parametrize("other", [{"service": "delivery"}, {"name": "totals"}, {"replica": "2"}])
def test_others_are_not_heard(other: dict[str, str]) -> None:
    watcher = Watcher()
    assert not watcher.hears(replace(BEAT, **other))  # type: ignore[arg-type]
    assert watcher.alive() == []


@pytest.mark.parametrize("skew_ms", [-86_400_001, 86_400_001])
def test_dt4_the_clocks_of_others_count_for_nothing(skew_ms: int) -> None:
    watcher = Watcher()
    for _ in range(100):
        assert watcher.hears(replace(BEAT, written_ms=watcher.now + skew_ms))
        watcher.passes(500)
        assert watcher.alive() == ["0"]


def test_dt4_a_pause_or_a_jump_of_the_own_clock_makes_nobody_dead() -> None:
    watcher = Watcher()
    watcher.hears(BEAT)
    for jump_ms in (3_600_000, -7_200_000):
        watcher.now += jump_ms
        assert watcher.alive() == ["0"]


def test_dt1_a_zombie_does_not_speak_for_its_replacement() -> None:
    watcher = Watcher()
    watcher.hears(replace(BEAT, epoch=9))
    assert not watcher.hears(BEAT)
    assert watcher.detector.alive(*STAGE, watcher.now)["0"].epoch == 9


def test_dt1_in_another_life_of_the_log_epochs_begin_again() -> None:
    watcher = Watcher()
    assert watcher.hears(replace(BEAT, epoch=70_000, life="former"))
    assert watcher.hears(replace(BEAT, epoch=3, life="present"))
    assert not watcher.hears(replace(BEAT, epoch=2, life="present"))
    assert watcher.detector.last(ZERO) == replace(BEAT, epoch=3, life="present")


def test_dt1_an_epoch_in_the_log_is_a_sign_of_life_and_silences_the_one_before() -> None:
    watcher = Watcher()
    watcher.hears(BEAT)
    watcher.passes(500)
    watcher.detector.began(ZERO, 7, watcher.now)
    assert watcher.detector.silent_ms(ZERO, watcher.now) == 500, "it is known"
    watcher.detector.began(ZERO, 9, watcher.now)
    assert watcher.detector.silent_ms(ZERO, watcher.now) == 0
    assert not watcher.hears(BEAT)
    watcher.passes(500)
    watcher.detector.began(ZERO, 9, watcher.now)
    assert watcher.detector.silent_ms(ZERO, watcher.now) == 500


def test_dt3_one_that_repeats_itself_has_stalled() -> None:
    watcher = Watcher()
    assert watcher.detector.stalled(ZERO, 100, watcher.now)
    watcher.hears(BEAT)
    watcher.passes(100)
    watcher.hears(replace(BEAT, written_ms=watcher.now))
    assert not watcher.detector.stalled(ZERO, 101, watcher.now)
    assert watcher.detector.stalled(ZERO, 100, watcher.now)
    assert watcher.alive() == ["0"]
    watcher.passes(100)
    watcher.hears(replace(BEAT, bucket=4))
    assert not watcher.detector.stalled(ZERO, 100, watcher.now)


def test_states_follow_the_heartbeats() -> None:
    watcher = Watcher()
    assert watcher.detector.states("tolls", watcher.now) == dict.fromkeys(
        "01", ReplicaState.FAILURE
    )
    assert watcher.detector.states("reports", watcher.now) == {}, "it has no replicas"
    watcher.hears(replace(BEAT, replica_state="up_failure"))
    watcher.hears(replace(BEAT, replica="1", epoch=2))
    assert watcher.detector.states("tolls", watcher.now) == {
        "0": ReplicaState.UP_FAILURE,
        "1": ReplicaState.FAILURE,
    }, "it only starts"
    watcher.passes(FAILURE_AFTER_MS)
    assert watcher.detector.states("tolls", watcher.now)["0"] is ReplicaState.FAILURE


def test_it_begins_with_the_first_look() -> None:
    time = ObservedTime()
    assert [time.at(now) for now in (5_000, 5_010, 5_010, 5_300)] == [0, 10, 10, 300]


def test_ot2_a_pause_counts_as_one_step() -> None:
    time = ObservedTime()
    assert [time.at(now) for now in (0, 60_000, 60_100)] == [
        0,
        OBSERVED_STEP_MS,
        OBSERVED_STEP_MS + 100,
    ]


def test_ot1_a_clock_that_is_set_back_stops_it_for_a_moment_only() -> None:
    time = ObservedTime()
    assert [time.at(now) for now in (10_000, 10_500, 3_000, 3_200)] == [0, 500, 500, 700]


def came_back(*times_ms: int) -> Silence:
    made = Silence()
    for now_ms in times_ms:
        made.came_back(now_ms)
    return made


def test_sl1_it_is_counted_from_one_of_the_own_news_to_the_next() -> None:
    assert came_back().ms == 0
    assert came_back(5_000).ms == 0, "how long nothing was heard before is not known"
    assert came_back(5_000, 5_250, 5_500).ms == 500
    assert came_back(0, OBSERVED_STEP_MS).ms == OBSERVED_STEP_MS


def test_sl1_who_has_not_heard_itself_yet_was_not_cut_off() -> None:
    made = Silence()
    made.broken(0)
    made.came_back(10 * GAP_MS)
    assert made.ms == 0


def test_sl2_a_sign_of_life_ends_it() -> None:
    made = came_back(0, 250, 500)
    made.broken(600)
    assert made.ms == 0
    made.came_back(750)
    assert made.ms == 150, "what came before the sign of life is not counted"
    made = came_back(0)
    made.broken(GAP_MS - 100)
    made.came_back(GAP_MS)
    assert made.ms == 100, "the way was open, for the other one was heard"


def test_sl3_after_a_gap_the_other_one_has_the_time_to_write_again() -> None:
    made = came_back(0, 250, 500, 500 + GAP_MS)
    assert made.ms == -HEARTBEAT_SEND_MS
    made.came_back(500 + GAP_MS + 250)
    assert made.ms == 250 - HEARTBEAT_SEND_MS
    made.broken(3_000)
    assert made.ms == 0


def test_sl3_where_every_way_is_long_silence_grows_nevertheless() -> None:
    made = came_back(*range(0, 4 * GAP_MS, GAP_MS))
    assert made.ms == 2 * OBSERVED_STEP_MS - HEARTBEAT_SEND_MS
    made.broken(3 * GAP_MS)
    made.came_back(4 * GAP_MS)
    assert made.ms == -HEARTBEAT_SEND_MS, "that it was heard means that the way was open"


def looked_at(standstill: Standstill, done: object, since_ms: int, until_ms: int) -> list[int]:
    """When the thread, which has ``done`` that, was stuck; it is looked at every second."""
    return [at_ms for at_ms in range(since_ms, until_ms, 1_000) if standstill.is_stuck(done, at_ms)]


def test_ss1_a_thread_that_does_nothing_is_stuck_after_a_minute() -> None:
    thread = Standstill()
    assert looked_at(thread, (1, 0), 0, STUCK_MS + 2_000) == [STUCK_MS, STUCK_MS + 1_000]
    assert looked_at(thread, (1, 1), STUCK_MS + 2_000, 2 * STUCK_MS + 2_000) == []
    assert thread.is_stuck((1, 1), 2 * STUCK_MS + 2_000)


def test_ss1_who_slept_himself_takes_no_thread_for_stuck() -> None:
    thread = Standstill()
    assert not thread.is_stuck(1, 0)
    assert not thread.is_stuck(1, 10 * STUCK_MS)
    assert looked_at(thread, 1, 10 * STUCK_MS, 11 * STUCK_MS) == [11 * STUCK_MS - 1_000]


def found_stuck(query: QueryStandstill, since_ms: int, until_ms: int) -> list[int]:
    """When the query was stuck, which is looked at every second."""
    return [at_ms for at_ms in range(since_ms, until_ms, 1_000) if query.is_stuck(at_ms)]


def test_ss2_a_query_that_never_asks_is_stuck_after_five_minutes() -> None:
    assert found_stuck(QueryStandstill(), 0, QUERY_STUCK_MS + 1_000) == [QUERY_STUCK_MS]


def test_ss2_a_query_may_wait_and_run_a_batch_as_long_as_it_likes() -> None:
    query, long_ms = QueryStandstill(), 2 * QUERY_STUCK_MS
    query.moved(is_engines_turn=False)
    assert found_stuck(query, 0, long_ms) == []
    query.moved(is_engines_turn=True)
    assert found_stuck(query, long_ms, long_ms + QUERY_STUCK_MS + 1_000) == [
        long_ms + QUERY_STUCK_MS
    ]


def test_ss2_each_question_counts_anew() -> None:
    query, half_ms = QueryStandstill(), QUERY_STUCK_MS // 2
    for since_ms in range(0, 10 * half_ms, half_ms):
        query.moved(is_engines_turn=False)
        query.moved(is_engines_turn=True)
        assert found_stuck(query, since_ms, since_ms + half_ms) == []


def test_sl5_what_was_counted_is_known_while_own_news_comes_back() -> None:
    made = Silence()
    assert not made.is_known(0)
    made.came_back(100)
    assert made.is_known(100 + OBSERVED_STEP_MS)
    assert not made.is_known(101 + OBSERVED_STEP_MS)
    made.broken(5_000)
    assert made.is_known(5_000), "another's news takes the same way"


@given(
    st.lists(
        st.tuples(st.sampled_from(["came_back", "broken"]), st.integers(0, 2 * OBSERVED_STEP_MS))
    )
)
def test_sl3_sl4_it_is_at_most_the_time_since_the_last_sign_less_the_gaps(
    steps: list[tuple[str, int]],
) -> None:
    made, now_ms = Silence(), 0
    since_ms: int | None = None
    gaps, open_ms = 0, 0
    for what, pause_ms in steps:
        now_ms += pause_ms
        getattr(made, what)(now_ms)
        if what == "broken":
            gaps = open_ms = 0
        elif since_ms is not None:
            is_gap = now_ms - since_ms > OBSERVED_STEP_MS
            gaps += is_gap
            open_ms = 0 if is_gap and gaps == 1 else open_ms + min(now_ms - since_ms, 1_000)
        if what == "came_back" or since_ms is not None:
            since_ms = now_ms
        assert made.ms == open_ms - (HEARTBEAT_SEND_MS if gaps else 0)
