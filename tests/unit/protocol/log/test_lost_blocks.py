"""Tests of which blocks are gone, by offsets and by what blocks say of themselves."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.log import lost_blocks
from anabranch.protocol.log.lost_blocks import (
    gone_buckets,
    is_block_of,
    is_deleted,
    is_out_of_bounds,
    last_deleted,
)
from anabranch.protocol.log.records import Part

PART = Part(7, 0, "ours", 3, 10, 20, 3, 0)


@pytest.mark.parametrize(
    ("first", "end", "deleted", "outside"),
    [
        (0, 20, False, False),
        (10, 99, False, False),
        (11, 99, True, True),
        (0, 19, False, True),
        (0, 0, False, True),
    ],
)
def test_lb1_a_part_outside_its_partition_is_gone(
    first: int, end: int, deleted: bool, outside: bool
) -> None:
    assert is_deleted(PART, first) == deleted
    assert is_out_of_bounds(PART, first, end) == outside


@pytest.mark.parametrize(
    ("bucket", "attempt", "offset", "expected"),
    [
        (7, "ours", 10, True),
        (7, "ours", 19, True),
        (7, "ours", 20, False),
        (7, "ours", 9, False),
        (8, "ours", 19, False),
        (7, "theirs", 19, False),
    ],
)
def test_lb1_a_block_is_of_the_part_whose_bucket_and_attempt_it_names(
    bucket: int, attempt: str, offset: int, expected: bool
) -> None:
    assert is_block_of(PART, bucket, attempt, offset) == expected


@given(
    writes=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    cuts=st.dictionaries(st.integers(0, 11), st.integers(0, 40), max_size=3),
    trimmed=st.integers(0, 10),
)
def test_lb1_whatever_is_lost_and_written_since_a_part_is_held_only_if_all_its_blocks_are(
    writes: list[int], cuts: dict[int, int], trimmed: int
) -> None:
    """A partition that loses its end now and then, and begins anew from there."""
    partition, parts = list[int](), list[Part]()
    for number, blocks in enumerate(writes):
        del partition[cuts.get(number, len(partition)) :]
        first = len(partition)
        partition += [number] * blocks
        parts.append(Part(1, 0, str(number), blocks, first, first + blocks, blocks, 0))
    start = min(trimmed, len(partition))
    for number, part in enumerate(parts):
        offsets = range(part.offset_first, part.offset_next)
        is_there = all(
            start <= offset < len(partition) and partition[offset] == number for offset in offsets
        )
        is_gone = is_out_of_bounds(part, start, len(partition)) or not is_block_of(
            part, 1, str(partition[part.offset_next - 1]), part.offset_next - 1
        )
        assert is_gone != is_there


def found(
    wrong: Iterable[int],
    held: Iterable[int],
    proven_max: int | None = None,
    *,
    proves: bool = True,
) -> tuple[list[int], list[int]]:
    """Return what is gone of buckets 1 to 9, and which of them were proven. ``wrong``: those out
    of bounds. ``held``: those whose blocks are there.
    """
    proven = list[int]()

    def are_held(writer: str, parts: Iterable[Part]) -> bool:
        assert writer == "w"
        (part,) = parts
        proven.append(part.bucket)
        return part.bucket in held

    buckets = [(bucket, "w", (Part(bucket, 0, "a", 1, 0, 1, 1, 0),)) for bucket in range(1, 10)]
    gone = gone_buckets(
        buckets,
        lambda _, parts: any(part.bucket in wrong for part in parts),
        are_held if proves else None,
        proven_max,
    )
    return gone, proven


ALL = range(1, 10)


def test_lb2_bounds_are_checked_of_all_buckets() -> None:
    assert found({2, 5, 9}, (), proves=False) == ([2, 5, 9], [])
    assert found((), (), proves=False) == ([], [])
    assert found({2, 5, 9}, ALL) == ([2, 5, 9], [1, 3, 6])


def test_lb2_blocks_are_proven_up_to_the_first_that_are_gone_and_on_through_those() -> None:
    assert found((), {1, 2, 6, 7, 8}) == ([3, 4, 5], [1, 2, 3, 4, 5, 6])
    assert found((), ALL) == ([], [*ALL])
    assert found({4}, {1, 2, 6, 7}) == ([3, 4, 5], [1, 2, 3, 5, 6])


def test_lb2_where_too_many_are_there_the_search_ends() -> None:
    assert found((), {1, 2}, proven_max=2) == ([], [1, 2])
    assert found((), {1, 2}, proven_max=3) == ([*range(3, 10)], [*ALL])


def test_no_more_are_found_than_one_request_may_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lost_blocks, "ASK_BUCKETS_MAX", 2)
    assert found((), {1}) == ([2, 3], [1, 2, 3])


@pytest.mark.parametrize(
    ("deleted", "expected"),
    [
        ([], 2),
        ([("a", 3)], 3),
        ([("a", 3), ("a", 4)], 4),
        ([("a", 4)], 4),
        ([("a", 5)], 2),  # b has the same
        ([("a", 4), ("a", 5)], 4),
        ([("a", 5), ("b", 5)], 5),
        ([("b", 5)], 2),
    ],
)
def test_lb3_a_new_reader_leaves_out_what_no_writer_has(
    deleted: list[tuple[str, int]], expected: int
) -> None:
    """It may read bucket 5 of ``b``, too; the log describes nothing up to bucket 2."""
    buckets = [(n, "a", (Part(n, 0, "ours", 1, 0, 1, 1, 0),)) for n in (3, 4, 5)]
    last = last_deleted(
        2,
        buckets,
        lambda writer, parts: any((writer, part.bucket) in deleted for part in parts),
        lambda bucket, _writer, parts: [("b", parts)] if bucket == 5 else [],
    )
    assert last == expected
