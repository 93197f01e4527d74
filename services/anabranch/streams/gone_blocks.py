"""Checks whether the blocks after a position still exist. A process checks before it starts, so
that it does not fail in the middle of its first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Final

from anabranch.ports import EventLog, LogReader, TopicPartition
from anabranch.protocol.limits import ASK_BUCKETS_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import Part
from anabranch.protocol.stage.planner import TakenBucket

Lock = AbstractContextManager[object]
"""Lock of a log state that another thread changes. It is never held while waiting for the log."""
_ALONE: Final[Lock] = nullcontext()
"""Lock of a log state that no other thread changes: none."""


class GoneBlocks:
    """Finder of one stream's deleted blocks. Asks for the first offset of each partition once."""

    def __init__(self, reader: LogReader, topic_of: Callable[[str], str]) -> None:
        """Keep the arguments. ``reader`` is asked for first offsets; ``topic_of`` maps a writer to
        its block topic.
        """
        self._reader, self._topic_of = reader, topic_of
        self._begins: dict[TopicPartition, int] = {}

    def is_gone(self, writer: str, parts: Iterable[Part]) -> bool:
        """Return whether any block of ``parts`` is deleted.

        Raises:
            Unavailable: the log does not answer.
        """
        for part in parts:
            at = TopicPartition(self._topic_of(writer), part.partition)
            if at not in self._begins:
                self._begins[at] = self._reader.offsets(at)[0]
            if part.offset_first < self._begins[at]:
                return True
        return False

    def gone(self, buckets: Iterable[TakenBucket]) -> list[int]:
        """Return those of ``buckets``, in the form of ``LogState.stable``, that have deleted
        blocks; at most the first ASK_BUCKETS_MAX.
        """
        found: list[int] = []
        for bucket, writer, parts in buckets:
            if self.is_gone(writer, parts):
                found.append(bucket)
                if len(found) == ASK_BUCKETS_MAX:
                    break
        return found


def last_gone(
    reader: LogReader,
    topic_of: Callable[[str], str],
    log_state: LogState,
    *,
    by_any: bool = False,
    lock: Lock = _ALONE,
) -> int:
    """Return the last stable bucket with deleted blocks, or that the log no longer describes; 0 if
    there is none. A new reader begins after it.

    Args:
        reader: Reader of the log, asked for first offsets.
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
    for bucket, writer, parts in reversed(stable):
        if not gone_blocks.is_gone(writer, parts):
            continue
        with lock:
            alike = log_state.alike(bucket, writer, parts) if by_any else []
        if all(gone_blocks.is_gone(other, own) for other, own in alike):
            return bucket
    return forgotten


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
) -> tuple[int, int] | None:
    """Return the first and last of the at most ASK_BUCKETS_MAX first stable buckets after ``after``
    with deleted blocks; None if there is none.

    Arguments are as in ``last_gone``; ``after`` is the last bucket that was read already.
    """
    with lock:
        if log_state.upto <= after:
            return None
        stable = log_state.stable(max(after, log_state.forgotten) + 1, log_state.upto)
    found = GoneBlocks(reader, topic_of).gone(stable)
    return (found[0], found[-1]) if found else None
