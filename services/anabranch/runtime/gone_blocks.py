"""Are the blocks still there that come after a position? A process looks before it starts, so that
it does not end in the middle of its first batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Final

from anabranch.ports import LogReader, TopicPartition
from anabranch.protocol.limits import ASK_BUCKETS_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import Part
from anabranch.protocol.stage.planner import TakenBucket

Lock = AbstractContextManager[object]
"""Guards a log state that another thread changes; nobody takes it while waiting for the log."""
_ALONE: Final[Lock] = nullcontext()
"""Of a log state that no other thread changes."""

_BUCKETS: Final = 1_000
"""So many non-empty buckets after the position are looked at: what is deleted is deleted from
the front.
"""


class GoneBlocks:
    """What is gone of one stream's blocks. It reads the beginnings of partitions once."""

    def __init__(self, reader: LogReader, topic_of: Callable[[str], str]) -> None:
        """``reader``: of the log, to ask for the beginnings of partitions;
        ``topic_of(writer)``: its block topic.
        """
        self._reader, self._topic_of = reader, topic_of
        self._begins: dict[TopicPartition, int] = {}

    def is_gone(self, writer: str, parts: Iterable[Part]) -> bool:
        """Whether any block of ``parts`` is deleted.

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
        """Those of ``buckets``, as ``LogState.stable`` gives them, that have deleted blocks;
        ASK_BUCKETS_MAX of them at most.
        """
        found: list[int] = []
        for bucket, writer, parts in buckets:
            if self.is_gone(writer, parts):
                found.append(bucket)
                if len(found) == ASK_BUCKETS_MAX:
                    break
        return found


def missing_blocks(
    reader: LogReader,
    topic_of: Callable[[str], str],
    log_state: LogState,
    after: int,
    *,
    lock: Lock = _ALONE,
) -> int | None:
    """The first stable bucket after ``after`` of which blocks are gone, or that the log describes
    no more; None: none of them is.

    Args:
        reader: Of the log, to ask for the beginnings of partitions.
        topic_of: (writer) -> its block topic.
        log_state: The stream, read to its end.
        after: What was read already.
        lock: Of the log_state.

    Raises:
        Unavailable: the log does not answer.
    """
    if after < log_state.forgotten:
        return after + 1
    found = gone_range(reader, topic_of, log_state, after, _BUCKETS, lock=lock)
    return None if found is None else found[0]


def last_gone(
    reader: LogReader,
    topic_of: Callable[[str], str],
    log_state: LogState,
    *,
    by_any: bool = False,
    lock: Lock = _ALONE,
) -> int:
    """The last stable bucket that is not described any more, or of which blocks are gone; 0: there
    is none. A new reader begins after it.

    Args:
        reader: Of the log, to ask for the beginnings of partitions.
        topic_of: (writer) -> its block topic.
        log_state: The stream, read to its end.
        by_any: A bucket may be read from any writer that made the same of it.
        lock: Of the log_state.

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


def gone_range(
    reader: LogReader,
    topic_of: Callable[[str], str],
    log_state: LogState,
    after: int,
    count_max: int | None = None,
    *,
    lock: Lock = _ALONE,
) -> tuple[int, int] | None:
    """(first, last) stable bucket after ``after`` of which blocks are gone, of ASK_BUCKETS_MAX such
    buckets; None: none of them is.

    As ``missing_blocks``, whose arguments these are; ``count_max``: look at so many non-empty
    buckets.
    """
    with lock:
        if log_state.upto <= after:
            return None
        stable = log_state.stable(max(after, log_state.forgotten) + 1, log_state.upto, count_max)
    found = GoneBlocks(reader, topic_of).gone(stable)
    return (found[0], found[-1]) if found else None
