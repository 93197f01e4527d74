"""Input to read again for a source's deleted blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.edge.ingestion import SourceProgress
from anabranch.protocol.edge.missing_input import InputState
from anabranch.protocol.edge.source_recomputation import Reread, SourceBatches, differing
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.records import BoundaryRecord, InputPosition, Part


def at(offset: int, partition: int = 0) -> InputPosition:
    return InputPosition("cars", partition, offset, 0)


def part(bucket: int, rows: int = 1, digest: int = 7) -> Part:
    return Part(bucket, 0, "a", 1, 0, 1, rows, digest)


def record(*buckets: int, positions: tuple[InputPosition, ...] = ()) -> BoundaryRecord:
    return BoundaryRecord(
        "0",
        1,
        BatchId("t", 1),
        None,
        0,
        tuple(part(bucket) for bucket in buckets),
        positions=positions,
        written_ms=9,
    )


def batches(*, begins_early: bool = True) -> SourceBatches:
    """Four batches; the first and the last have no rows of buckets 3 to 5."""
    found = SourceBatches(3, 5, begins_early=begins_early)
    found.seen(record(1, 2, positions=(at(10),)), 0)
    found.seen(record(2, 3, 4, positions=(at(20), at(5, 1))), 2)
    found.seen(record(4, 9, positions=(at(20), at(8, 1))), 3)
    found.seen(record(9, positions=(at(30), at(8, 1))), 4)
    return found


def test_sx1_batches_that_made_rows_of_wanted_buckets_are_read_and_no_others() -> None:
    first, second = batches().rereads({3, 4, 5}) or []
    assert first == Reread(
        SourceProgress((at(10),), 0), (at(20), at(5, 1)), frozenset({2, 3, 4}), 9
    )
    assert first.ranges() == {("cars", 0): (10, 20), ("cars", 1): (0, 5)}
    assert second.ranges() == {("cars", 1): (5, 8)}
    assert second.before.closed == 2
    assert batches().rereads({3}) == [first]
    assert batches().rereads({5}) == []


def test_sx1_a_record_without_positions_moves_none() -> None:
    found = SourceBatches(1, 9, begins_early=True)
    found.seen(record(), 1)
    found.seen(record(1, positions=(at(10),)), 1)
    found.seen(record(), 2)
    found.seen(record(2, positions=(at(12),)), 2)
    one, two = found.rereads({1, 2}) or []
    assert (one.ranges(), two.ranges()) == ({("cars", 0): (0, 10)}, {("cars", 0): (10, 12)})
    assert two.before.closed == 2, "an operator's record closes, too"


def test_sx2_without_its_beginning_a_batch_is_not_read_again() -> None:
    found = SourceBatches(1, 9, begins_early=False)
    found.seen(record(), 0)
    found.seen(record(1, positions=(at(10),)), 0)
    found.seen(record(2, positions=(at(20),)), 1)
    assert found.rereads({1, 2}) is None
    (only,) = found.rereads({2}) or []
    assert only.ranges() == {("cars", 0): (10, 20)}


def test_sx2_a_snapshot_has_the_beginning_of_the_next_batch() -> None:
    found = SourceBatches(1, 9, begins_early=True)
    found.restored(record(positions=(at(40),)), 3)
    found.seen(record(4, positions=(at(50),)), 4)
    (only,) = found.rereads({4}) or []
    assert only.before == SourceProgress((at(40),), 3)
    for last in (None, record()):
        found.restored(last, 3)
        found.seen(record(5, positions=(at(60),)), 5)
        assert found.rereads({5}) is None
        found = SourceBatches(1, 9, begins_early=True)


def test_sx3_every_wanted_bucket_has_the_rows_and_the_digest_of_the_log() -> None:
    wanted = [(3, "0", (part(3, 2, 5),)), (4, "0", (part(4),))]
    assert differing(wanted, [part(3, 1, 2), part(4), part(3, 1, 3), part(8)]) is None
    assert differing(wanted, [part(3, 2, 5)]) == 4
    assert differing(wanted, [part(3, 2, 6), part(4)]) == 3
    assert differing(wanted, [part(3, 1, 5), part(4)]) == 3


@pytest.mark.parametrize(
    ("begins", "ends", "topic_id", "expected"),
    [
        (0, 30, "one", ""),
        (10, 20, "one", ""),
        (0, 30, "", ""),
        (11, 30, "one", "cars[0] has its records from offset 11 on, and 10 is needed"),
        (25, 30, "one", "cars[0] has its records from offset 25 on, and 10 is needed"),
        (0, 19, "one", "cars[0] ends at offset 19, and those up to 20 are needed"),
        (0, 5, "one", "cars[0] ends at offset 5, and those up to 20 are needed"),
        (0, 30, "another", "cars was deleted and created again since it was read"),
    ],
)
def test_sx4_a_batch_is_read_in_the_topic_that_was_read(
    begins: int, ends: int, topic_id: str, expected: str
) -> None:
    before, upto = SourceProgress((at(10), at(5, 1)), 0), (at(20), at(5, 1))
    batch = Reread(before, tuple(replace(each, topic_id="one") for each in upto), frozenset(), 9)
    now = InputState({("cars", 0): (begins, ends)}, {"cars": topic_id} if topic_id else {})
    assert batch.lacks(now) == expected
    assert replace(batch, upto=upto).lacks(now) == ("" if topic_id == "another" else expected)
