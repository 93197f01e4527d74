"""Property: many records at once go to the same partitions as each alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec.partitions import partition_of
from anabranch.delivery.partitioning import Partitioner
from anabranch.protocol.edge.delivery import Slice
from anabranch.protocol.identifiers import RecordId
from harness.examples import examples


@examples(200)
@given(
    batches=st.lists(
        st.lists(
            st.binary(max_size=13)
            | st.sampled_from([b"k1", b"k22", b"k333", b"k4444"])
            | st.integers(0, 99).map(b"%05d".__mod__),
            max_size=40,
        ),
        max_size=4,
    ),
    partitions=st.integers(1, 50),
)
def test_partitions_of_many_are_those_of_each(batches: list[list[bytes]], partitions: int) -> None:
    partitioner = Partitioner(partitions)
    for keys in batches:
        found = partitioner.partitions_of(keys, [Slice(1, 0, len(keys))])
        assert found == [
            partition_of(key, RecordId(1, i), partitions) for i, key in enumerate(keys)
        ]


@given(
    bucket=st.integers(0, 2**40),
    start=st.integers(0, 2**30),
    count=st.integers(0, 9),
    partitions=st.integers(1, 50),
)
def test_records_without_key_go_where_their_ids_say(
    bucket: int, start: int, count: int, partitions: int
) -> None:
    slices = [Slice(bucket, start, start + count), Slice(bucket + 2, 0, 1)]
    ids = [RecordId(s.bucket, i) for s in slices for i in range(s.start, s.stop)]
    assert Partitioner(partitions).partitions_of([None] * len(ids), slices) == [
        partition_of(None, i, partitions) for i in ids
    ]
