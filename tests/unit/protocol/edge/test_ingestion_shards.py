"""IN13: a shard of a source, and what the others have read."""

from __future__ import annotations

import pytest

from anabranch.protocol.edge.ingestion import (
    END_SILENCE_MS,
    HEARTBEAT_AHEAD_MS,
    ChunkFacts,
    SourceMachine,
    SourceProgress,
    SourceRules,
)
from anabranch.protocol.log.records import InputPosition

OWN = ("cars", 0)


def machine(
    *, positions: tuple[InputPosition, ...] = (), **rules: int | bool | None
) -> SourceMachine:
    chosen = SourceRules(**{"bucket_ms": 100, "shards": 3, **rules})  # type: ignore[arg-type]
    return SourceMachine(chosen, {OWN: 0}, SourceProgress(positions), 0)


def speak(m: SourceMachine, now_ms: int, event_time_ms: int) -> int:
    m.read([ChunkFacts(OWN, m.offsets()[OWN] + 1, event_time_ms)], now_ms)
    return m.advance(now_ms)


def hear(
    m: SourceMachine, now_ms: int, offset_next: int, event_time_ms: int, *, idle: bool = False
) -> None:
    m.receive([InputPosition("cars", 1, offset_next, event_time_ms, 0, idle=idle)], now_ms)


def watch(m: SourceMachine, since_ms: int, until_ms: int) -> int:
    """Poll in vain."""
    for now_ms in range(since_ms, until_ms + 1, 100):
        for at in m.looks_due(now_ms):
            m.looked(at, empty=True, begun_ms=now_ms, done_ms=now_ms)
    return m.advance(until_ms)


def test_a_shard_that_speaks_closes_by_its_own_partitions() -> None:
    m = machine()
    hear(m, 0, 1, 150)
    assert speak(m, 10, 1_050) == 10
    hear(m, 20, 2, 5_000)
    assert m.advance(20) == 10


def test_one_that_is_silent_goes_on_with_the_others_once_it_was_silent_for_long_enough() -> None:
    m = machine(partition_idle_ms=1_000)
    speak(m, 0, 1_050)
    for now_ms in range(100, 1_400, 100):
        hear(m, now_ms, now_ms, 1_050 + now_ms)
        assert watch(m, now_ms, now_ms) == 10, "observed from 400 on"
    hear(m, 1_600, 1_600, 2_650)
    assert watch(m, 1_500, 1_700) == 26
    assert m.positions()[0].idle
    hear(m, 1_800, 1_800, 2_950)
    assert watch(m, 1_800, 1_800) == 29
    assert speak(m, 1_850, 2_960) == 29, "it holds the boundary again"
    hear(m, 1_900, 1_900, 9_000)
    assert m.advance(1_900) == 29


def test_it_waits_for_those_of_the_others_that_are_not_left_out_themselves() -> None:
    m = machine(partition_idle_ms=1_000)
    speak(m, 0, 1_050)
    hear(m, 900, 4, 1_050)
    watch(m, 100, 1_500)
    m.receive(
        [
            InputPosition("cars", 1, 5, 3_050, 0),
            InputPosition("cars", 3, 5, 1_250, 0),
            InputPosition("cars", 5, 5, 1_100, 0, idle=True),
        ],
        1_600,
    )
    assert watch(m, 1_600, 1_700) == 12


def test_others_that_say_nothing_leave_nobody_out() -> None:
    m = machine(partition_idle_ms=1_000)
    hear(m, 0, 5, 3_050)
    speak(m, 0, 1_050)
    assert watch(m, 100, 5_000) == 10


def test_a_partition_that_was_silent_with_the_source_gets_its_time_anew() -> None:
    m = machine(partition_idle_ms=1_000)
    hear(m, 0, 1, 1_050)
    speak(m, 0, 1_050)
    watch(m, 100, 3_000)
    hear(m, 3_000, 2, 4_050)
    assert watch(m, 3_100, 3_600) == 10
    hear(m, 3_700, 3, 4_550)
    assert watch(m, 3_700, 3_900) == 10
    hear(m, 3_950, 3, 4_550)
    assert watch(m, 4_000, 4_400) == 45


def test_without_a_rule_for_idleness_it_waits_for_ever() -> None:
    m = machine(partition_idle_ms=None)
    speak(m, 0, 1_050)
    hear(m, 3_000, 1, 4_050)
    assert m.looks_due(3_000) == []
    assert watch(m, 3_000, 20_000) == 10


def test_a_single_partition_is_looked_at_where_there_are_others() -> None:
    assert machine(shards=1).looks_due(0) == []
    assert machine().looks_due(0) == [OWN]


@pytest.mark.parametrize("shards", [1, 3])
def test_the_others_learn_of_a_partition_that_is_left_out(shards: int) -> None:
    """They may wait for it while nothing that this one says changes otherwise."""
    m = machine(partition_idle_ms=1_000, bounded=True, shards=shards)
    due = []
    for now_ms in range(0, 1_600, 100):
        for at in m.looks_due(now_ms):
            m.looked(at, empty=True, begun_ms=now_ms, done_ms=now_ms)
        hear(m, now_ms, now_ms + 1, 0)
        due += [now_ms] if m.moves_unread(now_ms) else []
    assert len(due) == (1 if shards > 1 else 0)
    assert m.positions()[0].idle


def test_the_source_is_not_silent_while_another_shard_speaks() -> None:
    m = machine(partition_idle_ms=None, source_idle_ms=1_000)
    speak(m, 0, 1_050)
    for now_ms in range(100, 3_000, 100):
        hear(m, now_ms, now_ms, 1_050 + now_ms)
        assert watch(m, now_ms, now_ms) == 10
    assert watch(m, 3_000, 3_800) == 10
    assert watch(m, 3_900, 4_800) > 15


def test_one_that_never_spoke_goes_on_by_the_clock_with_the_others() -> None:
    m = machine(partition_idle_ms=None, source_idle_ms=1_000)
    hear(m, 0, 1, 1_050)
    assert watch(m, 0, 900) == 0
    assert watch(m, 1_000, 1_600) == 16


def test_what_is_bounded_ends_with_the_largest_time_of_all() -> None:
    m, end_ms = machine(bounded=True), END_SILENCE_MS
    speak(m, 0, 1_050)
    hear(m, 1_000, 1, 1_950)
    assert watch(m, 0, end_ms + 900) == 10
    assert watch(m, end_ms + 1_000, end_ms + 1_500) == 20
    hear(m, end_ms + 2_000, 2, 2_950)
    assert watch(m, end_ms + 2_000, 2 * end_ms + 1_900) == 20
    assert watch(m, 2 * end_ms + 2_000, 2 * end_ms + 2_500) == 30


@pytest.mark.parametrize("idle", [True, False])
def test_a_restart_is_left_out_again_if_the_others_speak(idle: bool) -> None:
    m = machine(positions=(InputPosition(*OWN, 1, 1_050, 0, idle=idle),), partition_idle_ms=1_000)
    hear(m, 0, 1, 2_050)
    assert watch(m, 0, 500) == (20 if idle else 10)


def test_a_heartbeat_is_bounded_by_what_the_source_says() -> None:
    m = machine(max_ahead_ms=None)
    speak(m, 0, 1_050)
    hear(m, 0, 1, 5_000)
    assert m.limits(10**12).beat_above_ms() == 5_000 + HEARTBEAT_AHEAD_MS
