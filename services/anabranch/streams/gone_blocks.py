"""Checks whether the blocks after a position still exist (``protocol.log.lost_blocks``). A process
checks before it starts, so that it does not fail in the middle of its first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from functools import partial
from typing import Final

from anabranch.ports import EventLog, LogReader, TopicPartition
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.lost_blocks import (
    gone_buckets,
    is_deleted,
    is_out_of_bounds,
    last_deleted,
)
from anabranch.protocol.log.records import Part
from anabranch.protocol.stage.planner import TakenBucket
from anabranch.streams.block_heads import BlockHeads

Lock = AbstractContextManager[object]
"""Lock of a log state that another thread changes. It is never held while waiting for the log."""
_ALONE: Final[Lock] = nullcontext()
"""Lock of a log state that no other thread changes: none."""


class GoneBlocks:
    """Finder of one stream's blocks that were deleted or lost. Asks for the first offset and the
    end of each partition once, and again when a part of blocks that were written since may be
    beyond the end.
    """

    def __init__(
        self,
        reader: LogReader,
        topic_of: Callable[[str], str],
        heads: BlockHeads | None = None,
        *,
        unread_are_gone: bool | None = None,
    ) -> None:
        """Keep the arguments. ``reader`` is asked for offsets; ``topic_of`` maps a writer to its
        block topic. Without ``heads``, blocks that were lost from a partition that has grown past
        them since are not found.

        ``unread_are_gone`` is what counts of blocks within their partition that this process cannot
        read: on a broker with ACLs a process need not have the right to read what it writes. With
        None, the error is raised.
        """
        self._reader, self._topic_of, self._heads = reader, topic_of, heads
        self._unread_are_gone = unread_are_gone
        self._unread = set[str]()
        """Writers whose blocks could not be read: they are not tried again."""
        self._ends: dict[TopicPartition, tuple[int, int]] = {}
        """First offset and end of each partition."""
        self._asked_for: dict[TopicPartition, int] = {}
        """Highest offset that was in the log when a partition was asked last. Blocks are in the log
        before a record names them, so none up to here that is beyond the end is still to come.
        """

    def is_gone(self, writer: str, parts: Iterable[Part]) -> bool:
        """Return whether any block of ``parts`` is deleted or lost.

        Raises:
            Unavailable: the log does not answer.
        """
        parts = [*parts]
        if self._are_out_of_bounds(writer, parts):
            return True
        return self._heads is not None and not self._are_held(self._heads, writer, parts)

    def is_deleted(self, writer: str, parts: Iterable[Part]) -> bool:
        """Return whether any block of ``parts`` is deleted: all readers had passed it, and a new
        one leaves it out. What is lost was not passed, so readers ask for it.

        Raises:
            Unavailable: the log does not answer.
        """
        return any(is_deleted(part, self._ends_of(writer, part)[0]) for part in parts)

    def _are_out_of_bounds(self, writer: str, parts: Iterable[Part]) -> bool:
        """Return whether any block of ``parts`` is outside its partition."""
        return any(is_out_of_bounds(part, *self._ends_of(writer, part)) for part in parts)

    def _are_held(self, heads: BlockHeads, writer: str, parts: Iterable[Part]) -> bool:
        """Return whether the blocks at the offsets of ``parts`` are those of the parts."""
        if writer in self._unread:
            return not self._unread_are_gone
        try:
            return heads.are_held(self._topic_of(writer), parts)
        except Unavailable:
            if self._unread_are_gone is None:
                raise
            self._unread.add(writer)
            return not self._unread_are_gone

    def _ends_of(self, writer: str, part: Part) -> tuple[int, int]:
        """Return the first offset and the end of the partition of ``part``."""
        at = TopicPartition(self._topic_of(writer), part.partition)
        known = self._ends.get(at)
        if known is None or part.offset_next > max(known[1], self._asked_for[at]):
            known = self._ends[at] = self._reader.offsets(at)
            self._asked_for[at] = part.offset_next
        return known

    def gone(self, buckets: Iterable[TakenBucket], proven_max: int | None = None) -> list[int]:
        """Return those of ``buckets``, in the form of ``LogState.stable``, of which blocks are
        gone; at most the first ASK_BUCKETS_MAX. ``proven_max`` is that of ``gone_buckets``.
        """
        are_held = None if self._heads is None else partial(self._are_held, self._heads)
        return gone_buckets(buckets, self._are_out_of_bounds, are_held, proven_max)


def last_gone(
    reader: LogReader,
    topic_of: Callable[[str], str],
    log_state: LogState,
    *,
    by_any: bool = False,
    lock: Lock = _ALONE,
) -> int:
    """Return the last stable bucket with deleted blocks, or that the log no longer describes; 0 if
    there is none. A new reader begins after it (LB3).

    Args:
        reader: Reader of the log, asked for offsets.
        topic_of: Function from a writer to its block topic.
        log_state: State of the stream, read to its end.
        by_any: Whether a bucket may be read from any writer with an equal result.
        lock: Lock of ``log_state``.

    Raises:
        Unavailable: the log does not answer.
    """
    gone_blocks = GoneBlocks(reader, topic_of)
    with lock:
        forgotten, stable = (
            log_state.forgotten,
            log_state.stable(log_state.forgotten + 1, log_state.upto),
        )

    def alike(
        bucket: int, writer: str, parts: tuple[Part, ...]
    ) -> Iterable[tuple[str, tuple[Part, ...]]]:
        """Return the versions of others that count as well."""
        with lock:
            return log_state.alike(bucket, writer, parts) if by_any else ()

    return last_deleted(forgotten, stable, gone_blocks.is_deleted, alike)


def last_gone_everywhere(log: EventLog, topic_of: Callable[[str], str], log_state: LogState) -> int:
    """Return the last stable bucket of which no writer has all blocks any more, or that the log no
    longer describes; 0 if there is none. Opens a reader of ``log`` for it.

    Arguments are as in ``last_gone``.

    Raises:
        Unavailable: the log does not answer.
    """
    with closing(log.reader(committed=False, headers=False)) as reader:
        return last_gone(reader, topic_of, log_state, by_any=True)


def gone_range(
    reader: LogReader,
    topic_of: Callable[[str], str],
    log_state: LogState,
    after: int,
    *,
    lock: Lock = _ALONE,
    heads: BlockHeads | None = None,
    proven_max: int | None = None,
) -> tuple[int, int] | None:
    """Return the first and last of the at most ASK_BUCKETS_MAX first stable buckets after ``after``
    of which blocks are gone; None if there is none.

    Arguments are as in ``last_gone``; ``after`` is the last bucket that was read already.
    ``heads`` and ``proven_max`` are those of ``GoneBlocks``.
    """
    with lock:
        if log_state.upto <= after:
            return None
        stable = log_state.stable(max(after, log_state.forgotten) + 1, log_state.upto)
    found = GoneBlocks(reader, topic_of, heads).gone(stable, proven_max)
    return (found[0], found[-1]) if found else None
