"""``ingestion.batches``: what becomes of each record of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pytest

from anabranch.codec.edge import Decoder
from anabranch.codec.framing import VALUE_SCHEMA_ID
from anabranch.ingestion.batches import HEARTBEAT, Batch, Judged, joined, judge
from anabranch.pipeline.model import EventTime
from anabranch.ports import Chunk, Headers, TopicPartition
from anabranch.protocol.edge.ingestion import ChunkFacts, EventTimeLimits
from anabranch.protocol.limits import EVENT_TIME_MS_MAX
from harness.sources import pipeline, report

LIMITS = EventTimeLimits(late_upto_ms=1_000, ahead_above_ms=9_000)
BEAT = "beat"


def chunk(
    partition: int,
    *records: bytes | tuple[str, bytes | None] | None,
    first: int = 0,
    arrived_ms: int = 2_000,
) -> Chunk:
    """Return records at offsets ``first``, ``first`` + 2 ...; ``(BEAT, text)`` is a heartbeat."""
    values: list[bytes | None] = [
        b"ignored" if isinstance(record, tuple) else record for record in records
    ]
    headers: list[Headers] = [
        [("x", b"1"), (HEARTBEAT, record[1])] if isinstance(record, tuple) else ()
        for record in records
    ]
    n = len(records)
    return Chunk(
        TopicPartition("t", partition),
        [first + 2 * i for i in range(n)],
        values,
        [b"k"] * n,
        [arrived_ms + i for i in range(n)],
        headers,
    )


def judged(*chunks: Chunk, limits: EventTimeLimits = LIMITS, **source: Any) -> Judged:
    one = pipeline("p", **source).sources["reports"]
    batch = Batch.of(chunks)
    decoded = Decoder(one.record, one.format).decode(batch.values())
    return judge(batch, decoded, one, limits, 100)


def reasons(result: Judged) -> list[tuple[int, str]]:
    return [(number, why.reason.value) for number, why in result.rejected]


def test_good_records_of_several_partitions() -> None:
    result = judged(
        chunk(0, report(2_000, 1), report(1_500, 2)), chunk(1, report(3_000, 3), first=8)
    )
    assert result.table.column("car").to_pylist() == [1, 2, 3]
    assert result.table.column("event_time").to_pylist() == [2_000, 1_500, 3_000]
    assert result.table.column_names[-1] == "event_time"
    assert result.facts == [ChunkFacts(("t", 0), 3, 2_000), ChunkFacts(("t", 1), 9, 3_000)]
    assert (result.rejected, result.late, result.reassigned, result.buckets) == ([], 0, 0, 3)


def test_bad_ones_among_good_ones() -> None:
    result = judged(
        chunk(0, report(2_000, 1), b"{", None, report(2_100, 2)),
        chunk(1, b"", report(2_200, 3), report(None), report(-1)),
    )
    assert result.table.column("car").to_pylist() == [1, 2, 3]
    assert reasons(result) == [
        (1, "not_json"),
        (2, "null_value"),
        (4, "empty_value"),
        (6, "no_event_time"),
        (7, "out_of_range"),
    ]
    assert [fact.event_time_max_ms for fact in result.facts] == [2_100, 2_200]


def test_what_belongs_below_the_boundary_at_which_its_partition_was_found_is_not_late() -> None:
    limits = EventTimeLimits(late_upto_ms=1_000, ahead_above_ms=9_000, never_late={("t", 1): 900})
    known = chunk(0, report(900, 1), report(2_000, 2))
    found = chunk(1, report(900, 3), (BEAT, b"2500"), report(-1), report(901, 4), report(1_000, 5))
    result = judged(known, found, limits=limits)
    assert result.table.column("car").to_pylist() == [2, 3]
    assert result.table.column("event_time").to_pylist() == [2_000, 1_001]
    assert reasons(result) == [(0, "late"), (4, "out_of_range"), (5, "late"), (6, "late")]
    assert (result.late, result.reassigned) == (3, 1)
    assert result.facts[1].event_time_max_ms == 2_500
    result = judged(
        known,
        chunk(1, report(900, 3), report(950, 4), report(950, 5)),
        limits=limits,
        late="reassign",
    )
    assert result.table.column("event_time").to_pylist() == [1_001, 2_000, 1_001, 1_001, 1_001]
    assert (result.late, result.reassigned) == (3, 4)


def test_nothing_usable_moves_only_the_position() -> None:
    result = judged(chunk(0, b"{", report(None)))
    assert result.table.num_rows == 0
    assert result.facts == [ChunkFacts(("t", 0), 3, None)]


def test_late_ones_are_dead_letters_and_still_count_as_speech() -> None:
    result = judged(chunk(0, report(1_000, 1), report(1_001, 2)), chunk(1, report(900, 3)))
    assert result.table.column("car").to_pylist() == [2]
    assert reasons(result) == [(0, "late"), (2, "late")]
    assert (result.late, result.reassigned) == (2, 0)
    assert [fact.event_time_max_ms for fact in result.facts] == [1_001, 900]


def test_late_ones_may_be_reassigned() -> None:
    result = judged(chunk(0, report(1_000, 1), report(1_500, 2), report(-4, 3)), late="reassign")
    assert result.table.column("event_time").to_pylist() == [1_001, 1_500]
    assert result.table.column("time").to_pylist() == [1_000, 1_500], (
        "the record itself stays as it was"
    )
    assert (result.late, result.reassigned) == (1, 1)
    assert reasons(result) == [(2, "out_of_range")]
    assert result.facts[0].event_time_max_ms == 1_500


def test_those_ahead_move_nothing() -> None:
    result = judged(
        chunk(0, report(9_001, 1), report(9_000, 2)), chunk(1, report(4_102_444_800_000))
    )
    assert result.table.column("car").to_pylist() == [2]
    assert reasons(result) == [(0, "beyond_max_ahead"), (2, "beyond_max_ahead")]
    assert [fact.event_time_max_ms for fact in result.facts] == [9_000, None]


def test_a_boundary_beyond_the_clock_makes_a_record_dead_once() -> None:
    result = judged(
        chunk(0, report(9_500)), limits=EventTimeLimits(late_upto_ms=10_000, ahead_above_ms=9_000)
    )
    assert reasons(result) == [(0, "beyond_max_ahead")]


class TestArrival:
    def test_is_the_timestamp_of_the_broker(self) -> None:
        result = judged(
            chunk(0, report(5, 1), b"{", report(6, 2), arrived_ms=4_000),
            event_time=EventTime(field=None),
        )
        assert result.table.column("event_time").to_pylist() == [4_000, 4_002]
        assert result.facts[0].event_time_max_ms == 4_002
        assert judged(chunk(0, report(5)), event_time=EventTime(field=None)).table.column(
            "event_time"
        ).to_pylist() == [2_000]

    def test_without_timestamp_there_is_no_time(self) -> None:
        assert reasons(
            judged(chunk(0, report(5), arrived_ms=-1), event_time=EventTime(field=None))
        ) == [(0, "out_of_range")]

    def test_a_clock_that_is_behind_makes_nothing_late(self) -> None:
        limits = replace(LIMITS, late_upto_ms=2_500, newest_ms={("t", 0): 3_000})
        result = judged(
            chunk(0, report(5, 1), arrived_ms=2_000),
            chunk(0, report(5, 2), (BEAT, b""), arrived_ms=3_500),
            chunk(0, report(5, 3), arrived_ms=3_200),
            limits=limits,
            event_time=EventTime(field=None),
        )
        assert result.table.column("event_time").to_pylist() == [3_000, 3_500, 3_501]
        assert [each.event_time_max_ms for each in result.facts] == [3_000, 3_501, 3_501]
        assert result.rejected == []

    def test_a_clock_that_is_ahead_makes_nothing_a_dead_letter(self) -> None:
        limits = EventTimeLimits(0, 4_000, newest_ms={("t", 1): 4_500})
        result = judged(
            chunk(0, report(5, 1), (BEAT, b""), arrived_ms=9_000),
            chunk(1, report(5, 2), arrived_ms=9_000),
            limits=limits,
            event_time=EventTime(field=None),
        )
        assert result.table.column("event_time").to_pylist() == [4_000, 4_500]
        assert [each.event_time_max_ms for each in result.facts] == [4_000, 4_500]
        assert result.rejected == []

    def test_a_heartbeat_says_its_own_arrival(self) -> None:
        result = judged(
            chunk(0, (BEAT, b"junk"), arrived_ms=4_000), event_time=EventTime(field=None)
        )
        assert (result.facts[0].event_time_max_ms, result.rejected) == (4_000, [])


class TestHeartbeats:
    def test_one_from_the_year_2100_closes_nothing_where_nothing_is_ahead(self) -> None:
        limits = EventTimeLimits(0, EVENT_TIME_MS_MAX, stated_ms=3_000)
        result = judged(
            chunk(
                0,
                report(90_000_000, 1),
                (BEAT, b"176400000"),
                (BEAT, b"176400001"),
                (BEAT, b"4102444800000"),
            ),
            limits=limits,
        )
        assert reasons(result) == [(2, "beyond_max_ahead"), (3, "beyond_max_ahead")]
        assert result.facts == [ChunkFacts(("t", 0), 7, 176_400_000)]

    def test_speak_for_their_partition(self) -> None:
        result = judged(
            chunk(0, report(1_500, 1), (BEAT, b"2500"), report(1_600, 2)),
            chunk(1, (BEAT, b"2400"), (BEAT, b"2300")),
        )
        assert result.table.column("car").to_pylist() == [1, 2]
        assert result.facts == [ChunkFacts(("t", 0), 5, 2_500), ChunkFacts(("t", 1), 3, 2_400)]
        assert result.rejected == []

    def test_shift_nothing_among_bad_records(self) -> None:
        result = judged(
            chunk(
                0, (BEAT, b"2500"), b"{", report(2_000, 1), (BEAT, b"1"), report(None), report(900)
            )
        )
        assert result.table.column("car").to_pylist() == [1]
        assert reasons(result) == [(1, "not_json"), (4, "no_event_time"), (5, "late")]
        assert result.facts == [ChunkFacts(("t", 0), 11, 2_500)]

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            (None, "no_event_time"),
            (b"", "no_event_time"),
            (b"soon", "no_event_time"),
            (b"-5", "no_event_time"),
            ("²".encode(), "no_event_time"),
            (b"9" * 16, "no_event_time"),
            (b"0", "out_of_range"),
            (str(EVENT_TIME_MS_MAX + 1).encode(), "out_of_range"),
            (b"9001", "beyond_max_ahead"),
        ],
    )
    def test_that_are_not_as_they_must_be_are_dead_letters(
        self, text: bytes | None, reason: str
    ) -> None:
        result = judged(chunk(0, (BEAT, text)))
        assert reasons(result) == [(0, reason)]
        assert result.facts[0].event_time_max_ms is None

    def test_late_ones_say_nothing_new(self) -> None:
        result = judged(chunk(0, (BEAT, b"700")))
        assert (result.rejected, result.late, result.facts[0].event_time_max_ms) == ([], 0, 700)


class TestHalves:
    def test_keep_the_order_of_each_partition(self) -> None:
        front, back = Batch.of([chunk(0, b"a", b"b", b"c"), chunk(1, b"d")]).halves()
        assert [c.values for c in front.chunks] == [[b"a", b"b"]]
        assert [c.values for c in back.chunks] == [[b"c"], [b"d"]]
        assert [c.offset_next for c in back.chunks] == [5, 1]

    def test_what_was_read_later_is_taken_later(self) -> None:
        chunks = [chunk(0, b"a"), chunk(1, b"b", b"c"), chunk(0, b"d", first=9), chunk(1, b"e")]
        front, back = Batch.of(chunks).halves()
        assert [[c.values for c in half.chunks] for half in (front, back)] == [
            [[b"a"], [b"b"]],
            [[b"c"], [b"d"], [b"e"]],
        ]

    def test_of_single_records_are_by_partition(self) -> None:
        front, back = Batch.of([chunk(0, b"a"), chunk(1, b"b"), chunk(2, b"c")]).halves()
        assert [[c.values for c in half.chunks] for half in (front, back)] == [
            [[b"a"]],
            [[b"b"], [b"c"]],
        ]

    def test_find_records_by_number(self) -> None:
        batch = Batch.of([chunk(0, b"a", b"b"), chunk(1, b"c")])
        assert [batch.locate(number) for number in range(3)] == [(0, 0), (0, 1), (1, 0)]
        assert batch.records == 3


class TestJoined:
    """Records that were decoded piece by piece are what they are as one batch."""

    PIECES = (
        [chunk(0, report(2_000, 1), b"no", report(1_500, 2)), chunk(1, (BEAT, b"700"), b"")],
        [chunk(0, report(3_000, 3), first=40)],
        [chunk(1, b"{", (BEAT, b"800"), report(2_500, 4), first=50)],
    )

    @pytest.mark.parametrize("pieces", [PIECES, PIECES[1:2], PIECES[:2], PIECES[1:], PIECES[::2]])
    def test_they_are_judged_alike(self, pieces: Sequence[list[Chunk]]) -> None:
        one = pipeline("p").sources["reports"]
        decoder = Decoder(one.record, one.format)
        batches = [Batch.of(chunks) for chunks in pieces]
        batch, decoded = joined([(each, decoder.decode(each.values())) for each in batches])
        found = judge(batch, decoded, one, LIMITS, 100)
        expected = judged(*chain.from_iterable(pieces))
        assert found.table.equals(expected.table)
        assert reasons(found) == reasons(expected)
        assert (found.facts, found.size_bytes) == (expected.facts, expected.size_bytes)
        numbers = [number for number, _ in found.rejected]
        values = [v for c in batch.chunks for v in c.values]
        assert {values[number] for number in numbers} <= {b"no", b"", b"{"}


def test_the_header_of_the_schema_goes_with_its_value() -> None:
    """Heartbeats have no value that is decoded; of several headers the last counts."""
    named = chunk(0, b"a", (BEAT, b"1000"), b"b")
    headers = [[(VALUE_SCHEMA_ID, b"2"), (VALUE_SCHEMA_ID, b"1")], named.headers[1], ()]
    batch = Batch.of([chunk(1, b"c"), replace(named, headers=headers)])
    assert batch.values() == [b"c", b"a", b"b"]
    assert batch.schema_ids() == [None, b"1", None]
    assert Batch.of([chunk(1, b"c"), named]).schema_ids() is None
