"""Input to read again for a source's deleted blocks: the source's side of ASK
(``protocol.stage.recomputation``).

Theory of operation. A source makes each batch from a range of offsets of its input topic, and the
batch's boundary record has the positions at which the range ends. The record before it has those at
which it begins, and the boundary by which records were late. So, as long as the log has both
records and the topic the input between them, the rows of the batch can be made again. Only batches
are read that name a part in a wanted bucket, and of their rows only those in such buckets are kept:
a batch has all rows of a bucket that was open when it was read, and none of a closed one.

What the rules cannot tell is left to the comparison: the blocks of a bucket are used only if rows
and digest are those of the log (RC4).

Invariants:
    SX1 of a batch exactly the input is read that its record covers.
    SX2 a batch whose beginning the log does not have makes its range unable, as does one that began
        where a setting of the file said.
    SX3 nothing is used unless every wanted bucket has the rows and the digest that the log has.
    SX4 a batch is read only in the topics in which its offsets were recorded, where it is known
        which these were, and only if they have all of its input: a topic that was deleted and
        created again has other records at the same offsets, of which the digest does not compare
        every value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from anabranch.protocol.edge.ingestion import InputPartition, SourceProgress
from anabranch.protocol.edge.missing_input import InputState, Lost, missing
from anabranch.protocol.log.boundary_log import contents
from anabranch.protocol.log.records import BoundaryRecord, InputPosition, Part
from anabranch.protocol.stage.planner import TakenBucket


@dataclass(frozen=True, slots=True)
class Reread:
    """Batch of a source to read again."""

    before: SourceProgress
    """Progress with which the batch began."""
    upto: tuple[InputPosition, ...]
    """Positions at which it ended."""
    named: frozenset[int]
    """Buckets of which it made rows."""
    written_ms: int
    """Wall clock of the source then, in ms: bounds event times that were ahead."""

    def ranges(self) -> dict[InputPartition, tuple[int, int]]:
        """Return the first offset and the end of each partition that the batch read (SX1). A
        partition that was found in this batch was read from its beginning.
        """
        began = {(at.topic, at.partition): at.offset_next for at in self.before.positions}
        found = {}
        for end in self.upto:
            at = end.topic, end.partition
            first = began.get(at, 0)
            if first < end.offset_next:
                found[at] = first, end.offset_next
        return found

    def lacks(self, now: InputState) -> str:
        """Return why the input of the batch cannot be read again; empty if it can be (SX4).
        ``now``: state of the partitions of ``ranges``.
        """
        ends = {(end.topic, end.partition): end for end in self.upto}
        for at, (first, upto) in self.ranges().items():
            for found in missing([replace(ends[at], offset_next=first), ends[at]], now):
                if found.lost is Lost.REPLACED:
                    return f"{found.topic} was deleted and created again since it was read"
                where = f"{found.topic}[{found.partition}]"
                if found.lost is Lost.CUT:
                    return f"{where} ends at offset {found.next}, and those up to {upto} are needed"
                return f"{where} has its records from offset {found.next} on, and {first} is needed"
        return ""


class SourceBatches:
    """Batches of one source in the order of its log, as far as they concern a range of buckets."""

    def __init__(self, first: int, last: int, *, begins_early: bool) -> None:
        """Keep batches with rows of the buckets ``first..last``. ``begins_early``: the source began
        at the beginning of its topics, and not where its ``start`` says.
        """
        self._first, self._last = first, last
        self._before = SourceProgress() if begins_early else None
        self._kept: list[tuple[frozenset[int], Reread | None]] = []

    def seen(self, record: BoundaryRecord, closed: int) -> None:
        """Take the next accepted record of the log; ``closed`` is the last bucket that the log
        closes with it.
        """
        named = frozenset(
            part.bucket for part in record.parts if self._first <= part.bucket <= self._last
        )
        if named:
            whole = frozenset(part.bucket for part in record.parts)
            reread = (
                None
                if self._before is None
                else Reread(self._before, record.positions, whole, record.written_ms)
            )
            self._kept.append((named, reread))
        positions = record.positions or (() if self._before is None else self._before.positions)
        if positions:
            self._before = SourceProgress(positions, closed)

    def restored(self, last: BoundaryRecord | None, closed: int) -> None:
        """Take a log snapshot: ``last`` is the newest record before it, and ``closed`` the last
        bucket that is closed.
        """
        self._before = (
            SourceProgress(last.positions, closed) if last is not None and last.positions else None
        )

    def rereads(self, wanted: Collection[int]) -> list[Reread] | None:
        """Return the batches that made rows of ``wanted`` buckets; None if the log does not say of
        each where it began (SX2).
        """
        found = []
        for named, reread in self._kept:
            if named.isdisjoint(wanted):
                continue
            if reread is None:
                return None
            found.append(reread)
        return found


def differing(wanted: Iterable[TakenBucket], made: Iterable[Part]) -> int | None:
    """Return the first of the ``wanted`` buckets whose rows or digest are not those of ``made``
    (SX3); None if all are the same.
    """
    parts: dict[int, list[Part]] = {}
    for part in made:
        parts.setdefault(part.bucket, []).append(part)
    return next(
        (bucket for bucket, _, was in wanted if contents(parts.get(bucket, ())) != contents(was)),
        None,
    )
