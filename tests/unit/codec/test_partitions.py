"""The partitions that records go to are those of Kafka's Java client."""

from __future__ import annotations

import pytest

from anabranch.codec.partitions import murmur2, partition_of
from anabranch.protocol.identifiers import RecordId


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_that_of_the_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_records_without_key_go_round_by_id() -> None:
    assert [partition_of(None, RecordId(5, p), 3) for p in range(4)] == [2, 0, 1, 2]
    assert (
        partition_of(b"abc", RecordId(1, 0), 4)
        == partition_of(b"abc", RecordId(9, 7), 4)
        == (479470107 % 4)
    )
