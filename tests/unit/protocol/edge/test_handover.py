"""How the streams of one number of shards end, and where those of the next begin."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.edge.handover import (
    ENDED_WITHIN_MS,
    LEFT_TO_FIRST_MS,
    Attempts,
    EndedStream,
    SourceStream,
    end,
    ended,
    first_offset,
    goes_on,
    is_used_up,
    rest_upto,
    successor_begins,
    unexpected_processes,
)
from anabranch.protocol.edge.ingestion import SourceProgress
from anabranch.protocol.edge.shards import Shard
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import GivenUp, InputPosition
from harness.boundary_logs import part, record, started, state_after

ID = BatchId("e", 0)


def position(partition: int, offset: int = 5) -> InputPosition:
    return InputPosition("in", partition, offset, 1_000 + partition, found_after=partition)


def stream(index: int, count: int, *partitions: int, closed: int = 7) -> EndedStream:
    return EndedStream(
        Shard(index, count),
        tuple(map(position, partitions)),
        closed,
        closed + 1,
        rest_upto=closed + 2,
        written_ms=closed * 100,
    )


def after_end(log_state: LogState, heirs: int = 3) -> LogState:
    offset = 10
    log_state.apply(offset, replace(started(), token="t"))
    log_state.apply(
        offset + 1, end("0", offset, ID, log_state, SourceProgress(), heirs, now_ms=900)
    )
    return log_state


def test_ho2_an_end_closes_everything_with_what_was_named_before() -> None:
    log_state = state_after(
        started(), replace(record(0, 0, 5, (part(3), part(8)), past=6), positions=(position(1),))
    )
    log_state = after_end(log_state)
    assert log_state.heirs == 3
    log_state.heirs_known = 3
    assert log_state.upto == BUCKET_MAX
    assert log_state.stable(1, BUCKET_MAX) == [(3, "0", (part(3),)), (8, "0", (part(8),))]
    found = ended(Shard(1, 2), "0", log_state)
    assert found == EndedStream(
        Shard(1, 2), (position(1),), closed=5, past=6, rest_upto=8, written_ms=900
    )


def test_a_stream_that_never_began_ends_where_it_would_have_begun() -> None:
    log_state = LogState(["0"])
    log_state.apply(0, started())
    begins = SourceProgress([position(2)], closed=4)
    log_state.apply(1, end("0", 0, ID, log_state, begins, 2, now_ms=900))
    found = ended(Shard(0, 1), "0", log_state)
    assert (found.positions, found.closed, found.rest_upto) == ((position(2),), 4, 4)


def test_what_is_in_streams_before_the_one_that_ended_is_remembered() -> None:
    log_state = LogState(["0"])
    log_state.apply(0, replace(started(), rest_upto=30, bucket_ms=100))
    log_state.apply(1, record(0, 0, 5, (part(8),)))
    assert ended(Shard(), "0", after_end(log_state)).rest_upto == 30


def test_ho3_a_shard_begins_where_the_slowest_was_with_its_own_partitions() -> None:
    before = [stream(0, 2, 0, 2, 4, closed=9), stream(1, 2, 1, 3, closed=6)]
    found = successor_begins(Shard(1, 3), before, now_ms=700)
    assert list(found.positions) == [position(4), position(1)]
    assert (found.closed, found.past, found.away_ms) == (6, 7, 100)
    assert successor_begins(Shard(1, 3), before, now_ms=500).away_ms == 0, "by another clock"
    assert rest_upto(before) == 11
    assert rest_upto([]) == 0


@given(st.integers(1, 5), st.integers(1, 5), st.integers(1, 12))
def test_ho1_every_position_is_taken_over_once(old: int, new: int, partitions: int) -> None:
    before = [
        stream(index, old, *(p for p in range(partitions) if p % old == index))
        for index in range(old)
    ]
    taken = [
        each
        for index in range(new)
        for each in successor_begins(Shard(index, new), before, now_ms=0).positions
    ]
    assert sorted(taken, key=lambda each: each.partition) == list(map(position, range(partitions)))


def begins(partition: int, before: Sequence[EndedStream], *, is_new: bool = True) -> int:
    """Return where a partition from 3 to 90 is read from by a file that says ``latest``."""
    return first_offset(partition, (3, 90), "latest", before, unasked, is_new=is_new)


def unasked(_start_ms: int) -> int:
    raise AssertionError("the file names no time")


def test_ho4_only_what_nobody_should_have_read_begins_as_the_file_says() -> None:
    before = [stream(0, 2, 0, 2), stream(1, 2)]
    assert [begins(p, before) for p in (3, 4, 5)] == [90, 3, 90]
    assert begins(0, []) == 90, "a source that is new"


def test_ho4_a_partition_that_is_added_later_is_read_from_its_beginning() -> None:
    assert begins(3, [], is_new=False) == 3


@pytest.mark.parametrize(("start", "offset"), [("earliest", 3), ("latest", 90), (1_700, 41)])
def test_ho4_a_new_source_begins_where_its_file_says(start: str | int, offset: int) -> None:
    asked: list[int] = []

    def offset_from(start_ms: int) -> int:
        asked.append(start_ms)
        return 41

    assert first_offset(0, (3, 90), start, [], offset_from, is_new=True) == offset
    assert asked == ([start] if offset == 41 else [])


@pytest.mark.parametrize(
    ("numbers", "generation", "heirs", "written_so"),
    [
        ((2,), 1, 3, r"3 shards by now.* says 2: write `shards: \[2, 3\]`"),
        ((2, 4), 1, 3, r"says \[2, 4\]: write `shards: \[2, 3\]`"),
        ((0, 4), 2, 1, r"write `shards: \[0, 4, 1\]`"),
    ],
)
def test_ho5_who_does_not_know_the_heirs_stops_and_has_nothing_more(
    numbers: tuple[int, ...], generation: int, heirs: int, written_so: str
) -> None:
    of = SourceStream("cars", numbers, generation)
    log_state = state_after(started(), record(0, 0, 5, (part(8),)))
    of.tell(log_state)
    of.check(log_state)
    after_end(log_state, heirs)
    assert log_state.upto == 5
    with pytest.raises(ConfigurationError, match=written_so):
        of.check(log_state)


def test_who_knows_the_heirs_goes_on() -> None:
    of = SourceStream("cars", (2, 3, 1), 1)
    log_state = state_after(started(), record(0, 0, 5))
    of.tell(log_state)
    after_end(log_state)
    of.check(log_state)
    assert log_state.upto == BUCKET_MAX


@pytest.mark.parametrize(
    ("numbers", "generation", "lacks"),
    [((2,), 1, False), ((2, 3), 2, False), ((0, 3), 2, True), ((0, 3, 4), 3, False)],
)
def test_ho6_a_file_lacks_rows_where_it_does_not_name_the_number_before(
    numbers: tuple[int, ...], generation: int, lacks: bool
) -> None:
    log_state = LogState(["0"])
    SourceStream("cars", numbers, generation).tell(log_state)
    log_state.apply(0, replace(started(), rest_upto=30, bucket_ms=100))
    assert log_state.whole_after == (30 if lacks else 0)


def test_ho6_a_stream_is_used_up_when_it_has_ended_and_its_last_rows_are_taken() -> None:
    log_state = state_after(started(), record(0, 0, 5, (part(3), part(8)), past=6))
    assert not is_used_up(log_state, BUCKET_MAX), "it goes on"
    after_end(log_state)
    assert [is_used_up(log_state, bucket) for bucket in (7, 8)] == [False, True]
    empty = after_end(state_after(started(), record(0, 0, 5)))
    assert [is_used_up(empty, bucket) for bucket in (4, 5)] == [False, True]


@pytest.mark.parametrize(("index", "first_ms"), [(0, 100), (1, 100 + LEFT_TO_FIRST_MS)])
def test_ho7_a_shard_tries_to_end_a_stream_again_and_again_and_the_first_one_begins(
    index: int, first_ms: int
) -> None:
    attempts = Attempts(Shard(index, 2), 100)
    tried = [now_ms for now_ms in range(100, 10_000, 100) if attempts.is_due(now_ms)]
    assert tried == list(range(first_ms, 10_000, LEFT_TO_FIRST_MS))


def test_ho7_who_waits_too_long_for_an_end_begins_anew() -> None:
    attempts = Attempts(Shard(), 100)
    assert not attempts.is_over(100 + ENDED_WITHIN_MS)
    assert attempts.is_over(101 + ENDED_WITHIN_MS)


def test_strangers_are_those_of_the_numbers_that_the_file_names_and_of_one_more() -> None:
    found = unexpected_processes("cars", [15, 0, 14])
    assert found[:2] == ["cars", "cars.15"]
    assert found[2:5] == ["cars.3-14", "cars.3-15", "cars.4-0"]
    assert len(found) == 20


def test_ho8_a_stream_that_was_given_up_before_it_read_begins_as_without_that() -> None:
    before = [stream(0, 2, 0, 2, closed=9), stream(1, 2, 1, 3, closed=6)]
    given_up = replace(record(0, 0, 20), given_up=(GivenUp("s", 7, 20),), written_ms=650)
    begins = successor_begins(Shard(1, 3), before, now_ms=700)
    assert goes_on(Shard(1, 3), None, 0, before, 700) == begins
    found = goes_on(Shard(1, 3), given_up, 20, before, 700)
    assert found == replace(begins, closed=20, found_after=6)
    assert goes_on(Shard(), given_up, 20, [], 700) == SourceProgress(closed=20, found_after=0)
    read = replace(given_up, positions=(position(1),), past=21)
    assert goes_on(Shard(), read, 20, before, 700) == SourceProgress(
        (position(1),), 20, past=21, away_ms=50
    )


def test_ho8_such_a_stream_ends_with_the_positions_at_which_it_would_have_begun() -> None:
    log_state = state_after(started(), replace(record(0, 0, 5), given_up=(GivenUp("s", 1, 5),)))
    begins = SourceProgress([position(2)], closed=4)
    log_state.apply(9, end("0", 0, ID, log_state, begins, 2, now_ms=900))
    found = ended(Shard(0, 1), "0", log_state)
    assert (found.positions, found.closed) == ((position(2),), 5)
