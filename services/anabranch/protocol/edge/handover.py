"""Change of a source's number of shards: how its old streams end, and where the new ones
begin.

Theory of operation. The streams of a number are a *generation* (``protocol.edge.shards``). No log
serves two generations, so nothing of a log's own rules changes. A change is one step in the log of
each old stream: the *end*, an ordinary boundary record that closes all buckets. A new process
writes it, in an epoch that it begins there (rule 1), so the old writer counts no more. Records of a
partition before the position in the end are in the old stream, those of open buckets included: the
buckets are closed as they are. The new shard reads on from that position. So no record is read
twice and none left out, and nothing has to be deleted, dropped or read again.

A reader takes bucket n of all streams of all generations that its file names, or of none (PN1). An
ended stream closes every bucket, so it holds back nothing. A new stream closes nothing before its
first record, so it holds back everything until it knows where it begins. It begins closed up to
the least bucket that the old ones had closed. A reader can have taken no more than that, so no row
is added to a bucket that a reader has taken.

The first end in the log of the old generation's first stream decides the number of heirs, for the
ends of all its streams. A process begins a new stream only when all of the old generation have
ended with the number of heirs that its file names. So of two files that differ at most one
continues.

A process that begins an epoch in the log of an old stream fences the one that did so a moment
before. So the shards of the new generation do not all try at once: the others leave it to the
first, and act only where it does not end the stream.

A generation may be replaced before all of its shards have begun. Then the heir ends such a stream
with the positions at which it would have begun.

A process that does not know the heirs of a stream that has ended stops: all buckets are closed
there, but rows are elsewhere. Once all readers have taken what the old streams have
(``rest_upto``), the file need not name them any more; a reader that has not, and does not know
them, stops as well.

Invariants:
    HO1 each position of a partition is in the end of one old stream at most, and its heir continues
        there.
    HO2 an end changes nothing that is closed, and drops nothing that is open.
    HO3 a new stream has no row of a bucket that all old ones had closed.
    HO4 a partition that an old shard should have read, and has no position of, is read from its
        beginning; but by the file's ``start`` where that shard never recorded a position. So is one
        that is added to a topic later: the first record with positions names every partition of
        its time, and ``start`` applies before it alone.
    HO5 all ends of a generation have the same number of heirs, or no new stream begins.
    HO6 with the streams before it a generation has all rows of the buckets after ``rest_upto``.
    HO7 any shard ends an old stream where the first one does not; and either it has ended in time,
        or the shard that waits for it begins anew.
    HO8 a stream that was given up before it recorded positions begins where it would have begun
        without that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from anabranch.protocol.edge.ingestion import SourceProgress
from anabranch.protocol.edge.shards import Shard, members, unexpected_members
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX, SHARDS_MAX
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, InputPosition

LEFT_TO_FIRST_MS: Final = 3_000
"""Time for which the other shards leave it to the first one to end a stream, and each to its last
attempt, in ms: an attempt fences every process that tries at the same time.
"""

ENDED_WITHIN_MS: Final = 30_000
"""Maximum time for which a shard waits for the end of a stream, in ms. After it the shard begins
anew: the process that has fenced it is gone.
"""


class Attempts:
    """Times at which a shard of the next generation tries to end a stream (HO7). Not
    thread-safe.
    """

    def __init__(self, shard: Shard, now_ms: int) -> None:
        """Start the schedule. ``now_ms``, here and below, is of a monotonic clock."""
        self._begun_ms = now_ms
        self._next_ms = now_ms + (LEFT_TO_FIRST_MS if shard.index else 0)

    def is_due(self, now_ms: int) -> bool:
        """Return whether to try now; if so, schedule the next attempt."""
        if now_ms < self._next_ms:
            return False
        self._next_ms = now_ms + LEFT_TO_FIRST_MS
        return True

    def is_over(self, now_ms: int) -> bool:
        """Return whether the shard has waited for too long."""
        return now_ms - self._begun_ms > ENDED_WITHIN_MS


@dataclass(frozen=True, slots=True)
class EndedStream:
    """Final state of a stream that has ended, by its log."""

    shard: Shard
    positions: tuple[InputPosition, ...]
    closed: int
    """Last bucket that was closed before its end."""
    past: int
    """Bucket that the stream was known to be past (rule 13)."""
    rest_upto: int
    """Last bucket of which this stream, or one before it, may have rows."""
    written_ms: int
    """Time of its end, by the clock of the process that ended it, in ms."""


def ended(shard: Shard, replica: str, log_state: LogState) -> EndedStream:
    """Return the final state of the stream of ``log_state``, which has ended."""
    last = log_state.last(replica)
    assert last is not None, "it has ended"  # noqa: S101 - the caller has looked
    upto = max(log_state.rest_upto, log_state.filled_upto, last.past)
    past = log_state.past_upto
    return EndedStream(shard, last.positions, last.past, past, upto, last.written_ms)


def end(
    replica: str,
    epoch: int,
    ident: BatchId,
    log_state: LogState,
    begins: SourceProgress,
    heirs: int,
    now_ms: int,
) -> BoundaryRecord:
    """Return the record that ends the stream of ``log_state`` (HO2). ``begins``: where a stream
    without recorded positions would have begun. ``now_ms``: the wall clock.
    """
    read = read_to(log_state.last(replica))
    return BoundaryRecord(
        replica=replica,
        epoch=epoch,
        id=ident,
        prev=log_state.tip(replica),
        closed=BUCKET_MAX,
        positions=read or tuple(begins.positions),
        written_ms=now_ms,
        past=max(log_state.closed(replica), 0 if read else begins.closed),
        heirs=heirs,
    )


def read_to(last: BoundaryRecord | None) -> tuple[InputPosition, ...]:
    """Return the positions that the stream's last record names; empty: its ingestion has not
    recorded any yet.

    An operator who gives up a source before that appends a record without positions. It says
    nothing about where to begin.
    """
    return () if last is None else last.positions


def goes_on(
    shard: Shard,
    last: BoundaryRecord | None,
    closed: int,
    before: Sequence[EndedStream],
    now_ms: int,
) -> SourceProgress:
    """Return from where the ingestion of ``shard`` continues.

    Args:
        shard: Shard of the source.
        last: Last accepted record of the shard's log.
        closed: Last bucket that the log closes.
        before: Ended streams of the previous generation of shards, if there is one.
        now_ms: Wall clock time.
    """
    if last is not None and last.positions:
        away_ms = max(0, now_ms - last.written_ms)
        return SourceProgress(last.positions, closed, past=last.past, away_ms=away_ms)
    begins = successor_begins(shard, before, now_ms) if before else SourceProgress(found_after=0)
    return replace(begins, closed=max(begins.closed, closed))


@dataclass(frozen=True, slots=True)
class SourceStream:
    """A stream of a source, and the shards that the source has and had by the pipeline file."""

    source: str
    numbers: tuple[int, ...]
    """Number of shards by generation; 0 if the file does not name its streams any more."""
    generation: int
    """Generation of the stream."""

    def tell(self, log_state: LogState) -> None:
        """Set the stream's facts of the pipeline file in ``log_state``, which is to follow it."""
        is_last = self.generation == len(self.numbers)
        log_state.heirs_known = 0 if is_last else self.numbers[self.generation]
        log_state.rest_is_unread = self.generation > 1 and not self.numbers[self.generation - 2]

    def check(self, log_state: LogState) -> None:
        """Check that the stream has not ended with another number of successors than the file
        names, and raise ConfigurationError otherwise (HO5).
        """
        heirs = log_state.heirs
        if heirs in (0, log_state.heirs_known):
            return
        known = [*self.numbers[: self.generation], heirs]
        raise ConfigurationError(
            f"source {self.source} has {heirs} shards by now, and the pipeline file says"
            f" {written(self.numbers)}: write `shards: {written(known)}`, and behind them each"
            " number that it is to have after that"
        )


def unexpected_processes(source: str, numbers: Sequence[int]) -> list[str]:
    """Return names of streams that must not exist if ``source`` has had exactly the shards in
    ``numbers``: those of shards beyond each number, and those of a further generation.
    """
    found = [
        stream
        for generation, shards in enumerate(numbers, 1)
        if shards
        for stream in unexpected_members(source, shards, generation)
    ]
    return [*found, *members(source, SHARDS_MAX, len(numbers) + 1)]


def written(numbers: Sequence[int]) -> str:
    """Return the numbers as the pipeline file has them."""
    return str(numbers[0]) if len(numbers) == 1 else str(list(numbers))


def successor_begins(shard: Shard, before: Sequence[EndedStream], now_ms: int) -> SourceProgress:
    """Return where ``shard`` begins after the streams of the generation ``before`` (HO1, HO3): at
    the least advanced one. ``now_ms`` is the wall clock.
    """
    least = min(before, key=lambda each: each.closed)
    return SourceProgress(
        positions=[
            position
            for each in before
            for position in each.positions
            if shard.has(position.partition)
        ],
        closed=least.closed,
        past=least.past,
        away_ms=max(0, now_ms - least.written_ms),
        found_after=min(each.closed if each.positions else 0 for each in before),
    )


def rest_upto(before: Sequence[EndedStream]) -> int:
    """Return the last bucket of which the streams ``before`` may have rows (HO6)."""
    return max((each.rest_upto for each in before), default=0)


def is_used_up(log_state: LogState, trim_point: int) -> bool:
    """Return whether the stream of ``log_state`` has ended and all its readers have taken its last
    rows, so that the file need not name it any more (HO6). ``trim_point``: last bucket of it that
    no reader needs.
    """
    upto = max(log_state.filled_upto, log_state.closed_upto)
    return log_state.heirs > 0 and trim_point >= upto


def first_offset(
    partition: int,
    there: tuple[int, int],
    start: str | int,
    before: Sequence[EndedStream],
    offset_from: Callable[[int], int],
    *,
    is_new: bool,
) -> int:
    """Return the first offset to read of a partition that no boundary record names (HO4).

    Args:
        partition: Number of the partition.
        there: Its first offset and its end.
        start: Where the pipeline file lets a new source begin: ``earliest``, ``latest`` or a time,
            in ms.
        before: Ended streams of the previous generation of shards, if there is one.
        offset_from: Function that returns the partition's first offset of a time.
        is_new: Whether the shard has recorded no positions yet.
    """
    first, end = there
    was_read = any(each.positions for each in before if each.shard.has(partition))
    if not is_new or was_read or start == "earliest":
        return first
    return end if isinstance(start, str) else offset_from(start)
