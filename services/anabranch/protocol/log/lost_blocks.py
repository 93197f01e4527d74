"""Which blocks that a boundary log names are gone from their partitions.

Theory of operation. A part names offsets of a block topic (rule 7), and blocks leave a topic in two
ways. They are *deleted* from the beginning, by trimming or retention: the first offset of the
partition shows it, and no offset is used twice. Or they are *lost* from some offset to the end: a
broker loses its only disk, an unclean leader cuts the partition, or the topic is created again. The
partition then grows from there, and its end shows the loss only until it has grown past the lost
blocks. From then on bounds prove nothing: the offsets exist, and hold other blocks.

Every block names its bucket and its attempt, and the id of an attempt is random. So a block that
names those of a part is one of the part's own, in whichever life of the topic. A loss takes all
that comes after, so the *last* block of a part proves all of them down to the first offset of the
partition.

That proof costs a read of each partition. So a reader asks for it only after blocks could not be
read, and only up to the first buckets that are gone; a server of requests to recompute asks for it
for each requested bucket, since both must agree on what is gone.

Invariants:
    LB1 a part is gone unless all offsets that it names are within its partition and the last of
        them holds a block of the part.
    LB2 bounds are checked of all buckets. Blocks are proven up to the first bucket that is gone,
        and of the buckets that directly follow one that is gone.
    LB3 a reader that begins anew leaves out the stable buckets up to the last one with deleted
        blocks, and those that the log no longer describes. One that may read a bucket from any
        writer leaves out only what no writer has. What is lost it does not leave out: readers that
        ran have not passed that, and request it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from anabranch.protocol.limits import ASK_BUCKETS_MAX

if TYPE_CHECKING:
    from anabranch.protocol.log.records import Part


def is_deleted(part: Part, first: int) -> bool:
    """Return whether a block of ``part`` is below ``first``, the first offset of its partition."""
    return part.offset_first < first


def is_out_of_bounds(part: Part, first: int, end: int) -> bool:
    """Return whether a block of ``part`` is outside its partition, which has the offsets from
    ``first`` up to, not including, ``end``.
    """
    return is_deleted(part, first) or part.offset_next > end


def is_block_of(part: Part, bucket: int, attempt: str, offset: int) -> bool:
    """Return whether the block at ``offset`` of the part's partition belongs to ``part``, by the
    ``bucket`` and the ``attempt`` that the block names.
    """
    is_within = part.offset_first <= offset < part.offset_next
    return is_within and (bucket, attempt) == (part.bucket, part.attempt)


def gone_buckets(
    buckets: Iterable[tuple[int, str, tuple[Part, ...]]],
    out_of_bounds: Callable[[str, Iterable[Part]], bool],
    are_held: Callable[[str, Iterable[Part]], bool] | None = None,
    proven_max: int | None = None,
) -> list[int]:
    """Return those of ``buckets`` of which blocks are gone, at most the first ASK_BUCKETS_MAX.

    Args:
        buckets: Non-empty buckets, ascending, in the form of ``LogState.stable``.
        out_of_bounds: Function from a writer and parts to whether any of their blocks is outside
            its partition.
        are_held: Function from a writer and parts to whether the last block of each part is at its
            offset. None: bounds alone are checked.
        proven_max: Number of buckets after which ``are_held`` is not called any more while nothing
            was found. None: no limit.
    """
    found: list[int] = []
    was_gone = False
    for number, (bucket, writer, parts) in enumerate(buckets):
        is_searching = not found and (proven_max is None or number < proven_max)
        is_gone = out_of_bounds(writer, parts)
        if not is_gone and are_held is not None and (is_searching or was_gone):
            is_gone = not are_held(writer, parts)
        if is_gone:
            found.append(bucket)
            if len(found) == ASK_BUCKETS_MAX:
                break
        was_gone = is_gone
    return found


def last_deleted(
    forgotten: int,
    buckets: Sequence[tuple[int, str, tuple[Part, ...]]],
    are_deleted: Callable[[str, Iterable[Part]], bool],
    alike: Callable[[int, str, tuple[Part, ...]], Iterable[tuple[str, tuple[Part, ...]]]],
) -> int:
    """Return the last bucket that a reader leaves out which begins anew (LB3); 0 if there is none.

    Args:
        forgotten: Last bucket that the log no longer describes.
        buckets: Non-empty stable buckets after it, ascending, in the form of ``LogState.stable``.
        are_deleted: Function from a writer and parts to whether any of their blocks is deleted.
        alike: Function from a bucket, its writer and its parts to the equal versions of others that
            the reader may take instead, by writer.
    """
    for bucket, writer, parts in reversed(buckets):
        if are_deleted(writer, parts) and all(
            are_deleted(other, theirs) for other, theirs in alike(bucket, writer, parts)
        ):
            return bucket
    return forgotten
